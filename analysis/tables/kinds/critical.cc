// The critical path of one rank, which determined how long each step took.

#include <algorithm>
#include <array>
#include <map>

#include "analysis/gpu/critical_path.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"

namespace lockstep::tables {
namespace {

namespace shares {

// What the time of a path is divided into, in the order of PathCategory.
constexpr std::array<const char*, gpu::kPathCategories> kCategoryMeans = {
    "the host, outside what follows",
    "the host in ranges marked as input",
    "compute kernels",
    "communication kernels, the host in MPI or waiting for what it carries out itself (gloo, ucc)",
    "copies and memsets",
    "from a launch to the start on a GPU that was waiting for it",
    "from one operation to the next that was queued",
    "the host in calls that wait for the GPU, where nothing shows what they waited for",
    "waiting that nothing in the trace explains"};

const struct Columns : TableColumns {
  Column step = Add("step", kId, "step; none: the window", kKey);
  Column window = Add("window_ns", kNs, "its length: the sum of what follows", kSum);
  Column bound = Add("bound", kText, "the largest part");
  Column bound_share = Add("bound_share", kFraction, "its share");
  Column first = AddCategories();  // The others follow it.
  Column explained = AddDetail("explained_ns", kNs, "weight of the path: window less waiting", kSum);

  Column AddCategories() {
    for (std::size_t i = 0; i < gpu::kPathCategories; ++i)
      Add(std::string(gpu::PathCategoryName(static_cast<gpu::PathCategory>(i))) + "_ns", kNs, kCategoryMeans[i], kSum);
    return list().size() - gpu::kPathCategories;
  }
} col;

void Derive(TableRow& row, const TableTotals&) {
  std::size_t largest = 0;
  for (std::size_t i = 1; i < gpu::kPathCategories; ++i)
    if (IntOf(row[col.first + i]) > IntOf(row[col.first + largest])) largest = i;
  if (IntOf(row[col.window]) == 0) return;
  row[col.bound] = Text(gpu::PathCategoryName(static_cast<gpu::PathCategory>(largest)));
  row[col.bound_share] = Share(IntOf(row[col.first + largest]), IntOf(row[col.window]));
}

struct Sum {
  std::array<std::int64_t, gpu::kPathCategories> ns{};
  std::int64_t window_ns = 0, explained_ns = 0;
};

void Add(gpu::CriticalPathFinder& finder, Interval window, Sum& sum) {
  const gpu::CriticalPath path = finder.Find(window);
  for (const gpu::CriticalPathFinder::Share& share : finder.Shares(path))
    sum.ns[static_cast<std::size_t>(share.category)] += share.ns;
  sum.window_ns += window.end - window.begin;
  sum.explained_ns += path.explained_ns;
}

void Row(const gpu::RankView& rank, Cell step, const Sum& sum, Table& table) {
  TableRow& row = table.AddRow(rank.rank);
  row[col.step] = std::move(step);
  row[col.window] = Int(sum.window_ns);
  for (std::size_t i = 0; i < gpu::kPathCategories; ++i) row[col.first + i] = Int(sum.ns[i]);
  row[col.explained] = Int(sum.explained_ns);
}

void RankRows(const gpu::RankView& rank, const TableOptions&, Table& table) {
  const gpu::DeviceActivity activity(rank);
  if (activity.timeline.ops.empty()) return table.Note(gpu::NoGpuEvents());
  gpu::CriticalPathFinder finder(activity);
  Sum whole;
  for (const Interval& window : activity.windows) Add(finder, window, whole);
  Row(rank, {}, whole, table);
  for (const gpu::RankView::Step& step : rank.steps) {
    Sum sum;
    Add(finder, step.window, sum);
    Row(rank, Int(step.index), sum, table);
  }
  if (rank.tables.api.rows() == 0)
    table.Note("no host calls into the GPU runtime in the trace: the path stays on the GPU");
}

bool Earlier(const TableRow& a, const TableRow& b) { return InOrder(a, b, {Up(col.step)}); }

}  // namespace shares

namespace parts {

const struct Columns : TableColumns {
  Column category = Add("category", kText, "as the columns of critical-path", kKey);
  Column name = Add("name", kText, "kernel, copy, launching call; of host time the innermost range", kKey);
  Column total = Add("total_ns", kNs, "on the path", kSum);
  Column share = Add("share", kFraction, "of the window");
  Column count = Add("count", kCount, "GPU operations or launches on the path", kSum);
  Column window = AddDetail("window_ns", kNs, "the window", kSum);
} col;

bool Longer(const TableRow& a, const TableRow& b) {
  return InOrder(a, b, {Down(col.total), Up(col.category), Up(col.name)});
}

// The windows of ranks that lack a name count all the same.
void Derive(TableRow& row, const TableTotals& totals) {
  row[col.window] = Int(TotalOf(totals, "window_ns"));
  row[col.share] = Share(IntOf(row[col.total]), TotalOf(totals, "window_ns"));
}

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  const gpu::DeviceActivity activity(rank);
  if (activity.timeline.ops.empty()) return table.Note(gpu::NoGpuEvents());
  gpu::CriticalPathFinder finder(activity);
  struct Sum {
    std::int64_t ns = 0, count = 0;
    bool countable = false;
  };
  std::map<std::pair<gpu::PathCategory, std::string_view>, Sum> sums;
  for (const Interval& window : activity.windows)
    for (const gpu::CriticalPathFinder::Share& share : finder.Shares(finder.Find(window))) {
      Sum& sum = sums[{share.category, share.name}];
      sum.ns += share.ns;
      sum.count += share.operation;
      sum.countable |= share.operation;
    }
  table.totals["window_ns"] += Total(activity.windows);
  for (const auto& [key, sum] : sums) {
    if (!Passes(key.second, options)) continue;
    TableRow& row = table.AddRow(rank.rank);
    row[col.category] = Text(gpu::PathCategoryName(key.first));
    row[col.name] = Text(key.second);
    row[col.total] = Int(sum.ns);
    row[col.count] = IntOrUnknown(sum.count, sum.countable);
  }
}

}  // namespace parts
}  // namespace

const TableKind kCriticalPathTable = {.name = "critical-path",
                                      .title = "The critical path of each step: what its time was spent on",
                                      .answers = "what decided how long each step took",
                                      .columns = &shares::col,
                                      .rank_rows = shares::RankRows,
                                      .before = shares::Earlier,
                                      .derive = shares::Derive};
const TableKind kCriticalOpsTable = {.name = "critical-ops",
                                     .title = "What the critical path of the window consists of",
                                     .answers = "the kernels, calls and ranges on the critical path",
                                     .columns = &parts::col,
                                     .rank_rows = parts::RankRows,
                                     .before = parts::Longer,
                                     .derive = parts::Derive};

}  // namespace lockstep::tables
