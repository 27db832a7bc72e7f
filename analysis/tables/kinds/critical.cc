// What decided how long each step took: the critical path of one rank.

#include <algorithm>
#include <array>
#include <map>

#include "analysis/gpu/critical_path.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"

namespace lockstep::tables {
namespace {

namespace shares {

enum Column : std::size_t { kRank, kStep, kWindow, kBound, kBoundShare, kFirst };
constexpr std::size_t kExplained = kFirst + gpu::kPathCategories, kColumns = kExplained + 1;

Table Head() {
  Table table{"critical-path",
              "The critical path of each step: what its time was spent on",
              {{"rank", ColumnKind::kId, "rank; all: the ranks together"},
               {"step", ColumnKind::kId, "step; none: the window", Pool::kKey},
               {"window_ns", ColumnKind::kNs, "its length: the sum of what follows", Pool::kSum},
               {"bound", ColumnKind::kText, "the largest part"},
               {"bound_share", ColumnKind::kFraction, "its share"}},
              {},
              {}};
  constexpr std::array<const char*, gpu::kPathCategories> kText = {
      "the host, outside what follows",
      "the host in ranges marked as input",
      "compute kernels",
      "communication kernels, the host in MPI",
      "copies and memsets",
      "from a launch to the start on a GPU that was waiting for it",
      "from one operation to the next that was queued",
      "the host in calls that wait for the GPU, where nothing shows what they waited for",
      "waiting that nothing in the trace explains"};
  for (std::size_t i = 0; i < gpu::kPathCategories; ++i)
    table.columns.push_back({std::string(gpu::PathCategoryName(static_cast<gpu::PathCategory>(i))) + "_ns",
                             ColumnKind::kNs, kText[i], Pool::kSum});
  table.columns.push_back(
      {"explained_ns", ColumnKind::kNs, "weight of the path: window less waiting", Pool::kSum, true});
  return table;
}

void Judge(std::vector<Cell>& row) {
  std::size_t largest = 0;
  for (std::size_t i = 1; i < gpu::kPathCategories; ++i)
    if (IntOf(row[kFirst + i]) > IntOf(row[kFirst + largest])) largest = i;
  if (IntOf(row[kWindow]) == 0) return;
  row[kBound] = Text(gpu::PathCategoryName(static_cast<gpu::PathCategory>(largest)));
  row[kBoundShare] = Share(IntOf(row[kFirst + largest]), IntOf(row[kWindow]));
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
  std::vector<Cell> row(kColumns);
  row[kRank] = Int(rank.rank);
  row[kStep] = std::move(step);
  row[kWindow] = Int(sum.window_ns);
  for (std::size_t i = 0; i < gpu::kPathCategories; ++i) row[kFirst + i] = Int(sum.ns[i]);
  row[kExplained] = Int(sum.explained_ns);
  Judge(row);
  table.rows.push_back(std::move(row));
}

void RankRows(const gpu::RankView& rank, const TableOptions&, Table& table) {
  const gpu::DeviceActivity activity(rank);
  if (activity.timeline.ops.empty()) {
    table.notes.emplace_back(gpu::NoGpuEvents());
    return;
  }
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
    table.notes.emplace_back("no host calls into the GPU runtime in the trace: the path stays on the GPU");
}

void Finish(const merge::Timeline&, const TableOptions&, Table& table) {
  auto end = table.rows.begin();
  for (; end != table.rows.end() && IsPooled(*end); ++end) Judge(*end);
  std::stable_sort(table.rows.begin(), end, [](const std::vector<Cell>& a, const std::vector<Cell>& b) {
    return IntOf(a[kStep], -1) < IntOf(b[kStep], -1);
  });
}

}  // namespace shares

namespace parts {

enum Column : std::size_t { kRank, kCategory, kName, kTotal, kShare, kCount, kWindow };

Table Head() {
  return {"critical-ops",
          "What the critical path of the window consists of",
          {{"rank", ColumnKind::kId, "rank; all: the ranks together"},
           {"category", ColumnKind::kText, "as the columns of critical-path", Pool::kKey},
           {"name", ColumnKind::kText, "kernel, copy, launching call; of host time the innermost range", Pool::kKey},
           {"total_ns", ColumnKind::kNs, "on the path", Pool::kSum},
           {"share", ColumnKind::kFraction, "of the window"},
           {"count", ColumnKind::kCount, "GPU operations or launches on the path", Pool::kSum},
           {"window_ns", ColumnKind::kNs, "the window", Pool::kSum, true}},
          {},
          {}};
}

bool Longer(const std::vector<Cell>& a, const std::vector<Cell>& b) {
  const auto key = [](const std::vector<Cell>& row) {
    return std::tuple(-IntOf(row[kTotal]), TextOfCell(row[kCategory]), TextOfCell(row[kName]));
  };
  return key(a) < key(b);
}

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  const gpu::DeviceActivity activity(rank);
  if (activity.timeline.ops.empty()) {
    table.notes.emplace_back(gpu::NoGpuEvents());
    return;
  }
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
  const std::int64_t window = Total(activity.windows);
  table.totals["window_ns"] += window;
  for (const auto& [key, sum] : sums) {
    if (!Passes(key.second, options)) continue;
    std::vector<Cell> row(kWindow + 1);
    row[kRank] = Int(rank.rank);
    row[kCategory] = Text(gpu::PathCategoryName(key.first));
    row[kName] = Text(key.second);
    row[kTotal] = Int(sum.ns);
    row[kShare] = Share(sum.ns, window);
    row[kCount] = IntOrUnknown(sum.count, sum.countable);
    row[kWindow] = Int(window);
    table.rows.push_back(std::move(row));
  }
  std::stable_sort(table.rows.begin(), table.rows.end(), Longer);
}

// Ranks that lack a name have their windows all the same.
void Finish(const merge::Timeline&, const TableOptions&, Table& table) {
  auto end = table.rows.begin();
  for (; end != table.rows.end() && IsPooled(*end); ++end) {
    (*end)[kWindow] = Int(table.totals["window_ns"]);
    (*end)[kShare] = Share(IntOf((*end)[kTotal]), table.totals["window_ns"]);
  }
  std::stable_sort(table.rows.begin(), end, Longer);
}

}  // namespace parts
}  // namespace

const TableKind kCriticalPathTable = {"critical-path", "what decided how long each step took", shares::Head,
                                      shares::RankRows, shares::Finish};
const TableKind kCriticalOpsTable = {"critical-ops", "the kernels, calls and ranges on the critical path", parts::Head,
                                     parts::RankRows, parts::Finish};

}  // namespace lockstep::tables
