// Where the host waits for the GPU, and how long the GPU is idle after it.

#include <algorithm>
#include <map>

#include "analysis/core/step_names.h"
#include "analysis/gpu/device_gaps.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"

namespace lockstep::tables {
namespace {
namespace syncs {

using schema::kNone;

const struct Columns : TableColumns {
  Column call = Add("call", kText, "what blocks: a sync, a blocking copy, freeing memory", kKey);
  Column op = Add("op", kText, "innermost operator around it", kKey);
  Column range = Add("range", kText, "innermost range of the application around it", kKey);
  Column count = Add("count", kCount, "calls that began in the window", kSum);
  Column total = Add("total_ns", kNs, "the host's time in them", kSum);
  Column mean = Add("mean_ns", kNs, "mean");
  Column max = AddDetail("max_ns", kNs, "longest", kMax);
  Column idle_after = Add("idle_after_ns", kNs,
                          "idle time of the GPU that these caused: until they returned, and the launches that they "
                          "delayed (sync, memory and copy of the table idle)",
                          kSum);
  Column idle_gaps = Add("idle_gaps", kCount, "in so many gaps", kSum);
  Column idle_largest = AddDetail("idle_largest_ns", kNs, "the largest of them", kMax);
  Column idle_step = AddDetail("idle_largest_step", kId, "its step");
  Column waited =
      AddDetail("gpu_wait_ns", kNs, "wait as the GPU's own record of the sync has it, where there is one", kSum);
} col;

struct Sum {
  std::int64_t count = 0, total_ns = 0, max_ns = 0, idle_ns = 0, gaps = 0, largest_ns = 0, waited_ns = 0;
  bool waited = false;
  Cell largest_step;
};

bool Worse(const TableRow& a, const TableRow& b) {
  return InOrder(a, b,
                 {Down(col.idle_after), Down(col.total), Down(col.count), Up(col.call), Up(col.op), Up(col.range)});
}

void Derive(TableRow& row, const TableTotals&) {
  if (IntOf(row[col.count]) > 0) row[col.mean] = Int(Mean(IntOf(row[col.total]), IntOf(row[col.count])));
}

// What is around a call: an operator, a range that the application made. Rows of strings.
struct Around {
  std::uint32_t op = kNone, range = kNone;
};
Around AroundOf(const gpu::RankView& rank, const gpu::RangeNest& nest, const gpu::BlockingCall& call) {
  constexpr std::uint8_t kCpuOp = schema::RangeSource::kCpuOp, kTorch = schema::RangeSource::kTorch;
  Around around;
  if (call.thread == kNone) return around;
  const auto& ranges = rank.tables.ranges;
  for (std::uint32_t r = nest.At(call.thread, call.begin_ns); r != kNone; r = nest.Parent(r)) {
    if (ranges.source[r] == kCpuOp) {
      if (around.op == kNone) around.op = ranges.name[r];
    } else if (ranges.source[r] <= kTorch && !analysis::IsProfilerStep(rank.Text(ranges.name[r]))) {
      around.range = ranges.name[r];
      break;
    }
  }
  return around;
}

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  const gpu::DeviceActivity activity(rank);
  const gpu::DeviceGaps found = gpu::FindGaps(activity);
  if (found.blocking.empty()) {
    if (activity.timeline.ops.empty())
      table.Note(gpu::NoGpuEvents());
    else
      table.Note(rank.tables.api.rows() == 0 && rank.tables.sync.rows() == 0
                     ? "no host calls into the GPU runtime in the trace"
                     : "no call that waits for the GPU");
    return;
  }
  const gpu::RangeNest nest(rank.tables);
  const auto name_of = [&](std::uint32_t id) { return std::string(id == kNone ? std::string_view() : rank.Text(id)); };
  std::map<std::tuple<std::string, std::string, std::string>, Sum> sums;
  std::vector<Sum*> of_call(found.blocking.size(), nullptr);
  const auto sum_of = [&](std::uint32_t i) -> Sum& {
    if (of_call[i] == nullptr) {
      const Around around = AroundOf(rank, nest, found.blocking[i]);
      of_call[i] = &sums[{gpu::BlockingName(rank, found.blocking[i]), name_of(around.op), name_of(around.range)}];
    }
    return *of_call[i];
  };
  for (std::uint32_t i = 0; i < found.blocking.size(); ++i) {
    const gpu::BlockingCall& call = found.blocking[i];
    if (!rank.InHostWindow(call.begin_ns)) continue;
    Sum& sum = sum_of(i);
    ++sum.count;
    sum.total_ns += call.end_ns - call.begin_ns;
    sum.max_ns = std::max(sum.max_ns, call.end_ns - call.begin_ns);
    if (call.sync == kNone) continue;
    sum.waited = true;
    sum.waited_ns += rank.tables.sync.duration_ns[call.sync];
  }
  for (const gpu::Gap& gap : found.gaps) {
    std::map<std::uint32_t, std::int64_t> by_call;
    for (const gpu::GapPart& part : found.PartsOf(gap))
      if (part.blocking != kNone) by_call[part.blocking] += part.at.end - part.at.begin;
    for (const auto& [call, ns] : by_call) {
      Sum& sum = sum_of(call);
      sum.idle_ns += ns;
      ++sum.gaps;
      if (ns <= sum.largest_ns) continue;
      sum.largest_ns = ns;
      const gpu::RankView::Step* step = rank.StepAt(gap.at.begin);
      sum.largest_step = step != nullptr ? Int(step->index) : Cell();
    }
  }
  for (const auto& [key, sum] : sums) {
    const auto& [call, op, range] = key;
    if (!Passes(call, options) && !Passes(op, options) && !Passes(range, options)) continue;
    TableRow& row = table.AddRow(rank.rank);
    row[col.call] = call;
    if (!op.empty()) row[col.op] = op;
    if (!range.empty()) row[col.range] = range;
    row[col.count] = Int(sum.count);
    row[col.total] = Int(sum.total_ns);
    row[col.max] = Int(sum.max_ns);
    row[col.idle_after] = Int(sum.idle_ns);
    row[col.idle_gaps] = Int(sum.gaps);
    row[col.idle_largest] = Int(sum.largest_ns);
    row[col.idle_step] = sum.largest_step;
    row[col.waited] = IntOrUnknown(sum.waited_ns, sum.waited);
  }
}

}  // namespace syncs
}  // namespace

const TableKind kSyncsTable = {.name = "syncs",
                               .title = "Where the host waits for the GPU",
                               .answers = "where the host waits for the GPU, and what that costs",
                               .columns = &syncs::col,
                               .rank_rows = syncs::RankRows,
                               .before = syncs::Worse,
                               .derive = syncs::Derive};

}  // namespace lockstep::tables
