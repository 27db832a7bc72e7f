// When the GPU did nothing, and why: sums by cause, and the largest gaps.

#include <algorithm>
#include <array>

#include "analysis/gpu/device_gaps.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"

namespace lockstep::tables {
namespace {

namespace cause {

const struct Columns : TableColumns {
  Column device = Add("device", kId, "device, on ranks that use several", kKey);
  Column cause =
      Add("cause", kText,
          "host, input, sync, collective, stream_wait, launch_latency, launch_unknown, edge_of_trace; all: their sum",
          kKey);
  Column count = Add("count", kCount, "gaps: no stream of the device busy", kSum);
  Column total = Add("total_ns", kNs, "their time within the window", kSum);
  Column of_idle = Add("share_of_idle", kFraction, "of the device's idle time");
  Column of_window = Add("share_of_window", kFraction, "of the window");
  Column largest = Add("largest_ns", kNs, "the largest one", kMax);
  Column idle = AddDetail("idle_ns", kNs, "the device's idle time", kSum);
  Column window = AddDetail("window_ns", kNs, "the window", kSum);
} col;

constexpr std::string_view kAll = "all";

void Derive(TableRow& row, const TableTotals&) {
  row[col.of_idle] = Share(IntOf(row[col.total]), IntOf(row[col.idle]));
  row[col.of_window] = Share(IntOf(row[col.total]), IntOf(row[col.window]));
}

bool Before(const TableRow& a, const TableRow& b) {
  const auto key = [](const TableRow& row) {
    return std::tuple(IntOf(row[col.device], -1), TextOfCell(row[col.cause]) != kAll, -IntOf(row[col.total]),
                      TextOfCell(row[col.cause]));
  };
  return key(a) < key(b);
}

void RankRows(const gpu::RankView& rank, const TableOptions&, Table& table) {
  const gpu::DeviceActivity activity(rank);
  if (activity.timeline.ops.empty()) return table.Note(gpu::NoGpuEvents());
  const gpu::DeviceGaps found = gpu::FindGaps(activity);
  struct Sum {
    std::int64_t count = 0, total_ns = 0, largest_ns = 0;
  };
  auto gap = found.gaps.begin();
  for (const gpu::DeviceGaps::Device& device : found.devices) {
    std::array<Sum, gpu::kGapCauses + 1> sums;
    for (; gap != found.gaps.end() && gap->device == device.device; ++gap)
      for (Sum* sum : {&sums[static_cast<std::size_t>(gap->cause)], &sums[gpu::kGapCauses]}) {
        const std::int64_t ns = gap->at.end - gap->at.begin;
        ++sum->count;
        sum->total_ns += ns;
        sum->largest_ns = std::max(sum->largest_ns, ns);
      }
    for (std::size_t i = 0; i <= gpu::kGapCauses; ++i) {
      if (sums[i].count == 0 && i < gpu::kGapCauses) continue;
      TableRow& row = table.AddRow(rank.rank);
      row[col.device] = IntOrUnknown(device.device, found.devices.size() > 1);
      row[col.cause] = Text(i < gpu::kGapCauses ? gpu::GapCauseName(static_cast<gpu::GapCause>(i)) : kAll);
      row[col.count] = Int(sums[i].count);
      row[col.total] = Int(sums[i].total_ns);
      row[col.largest] = Int(sums[i].largest_ns);
      row[col.idle] = Int(device.idle_ns);
      row[col.window] = Int(device.window_ns);
    }
  }
}

}  // namespace cause

namespace list {

const struct Columns : TableColumns {
  using TableColumns::TableColumns;
  Column device = Add("device", kId, "device");
  Column at = Add("at_ns", kNs, "begin, since the window's");
  Column gap = Add("gap_ns", kNs, "length within the window");
  Column cause = Add("cause", kText, "as in idle");
  Column step = Add("step", kId, "step in which it began");
  Column host =
      Add("host", kText,
          "innermost range that covers at least half of the wait for the launch; of a sync the range it was called in");
  Column call = Add("call", kText, "runtime call that covers at least half of it, or the sync");
  Column before = AddDetail("before", kText, "what ended last before it");
  Column after = Add("after", kText, "what began at its end");
  Column begin = AddDetail("begin_ns", kId, "begin, rank clock");
} col("rank");

bool Longer(const TableRow& a, const TableRow& b) {
  return InOrder(a, b, {Down(col.gap), Up(col.rank), Up(col.begin), Up(col.device)});
}

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  const gpu::DeviceActivity activity(rank);
  const auto& ops = activity.timeline.ops;
  if (ops.empty()) return table.Note(gpu::NoGpuEvents());
  gpu::DeviceGaps found = gpu::FindGaps(activity);
  const auto longer = [](const gpu::Gap& a, const gpu::Gap& b) {
    return std::tuple(a.at.begin - a.at.end, a.at.begin, a.device) <
           std::tuple(b.at.begin - b.at.end, b.at.begin, b.device);
  };
  table.totals[std::string(kListedRows)] += static_cast<std::int64_t>(found.gaps.size());
  // Names are made for what can be shown only.
  const std::size_t wanted = RowsWanted(options, found.gaps.size());
  std::partial_sort(found.gaps.begin(), found.gaps.begin() + static_cast<std::ptrdiff_t>(wanted), found.gaps.end(),
                    longer);
  found.gaps.resize(wanted);
  for (const gpu::Gap& gap : found.gaps) {
    TableRow& row = table.AddRow(rank.rank);
    row[col.device] = Int(gap.device);
    row[col.at] = Int(gap.at.begin - activity.windows.front().begin);
    row[col.gap] = Int(gap.at.end - gap.at.begin);
    row[col.cause] = Text(gpu::GapCauseName(gap.cause));
    if (const gpu::RankView::Step* step = rank.StepAt(gap.at.begin)) row[col.step] = Int(step->index);
    if (gap.host_range != schema::kNone) row[col.host] = Text(rank.Text(rank.tables.ranges.name[gap.host_range]));
    if (gap.blocking != schema::kNone)
      row[col.call] = gpu::BlockingName(rank, found.blocking[gap.blocking]);
    else if (gap.host_call != schema::kNone)
      row[col.call] = Text(rank.Text(rank.tables.api.name[gap.host_call]));
    if (gap.before != schema::kNone) row[col.before] = gpu::OpName(rank, ops[gap.before]);
    if (gap.after != schema::kNone) row[col.after] = gpu::OpName(rank, ops[gap.after]);
    row[col.begin] = Int(gap.at.begin);
  }
}

}  // namespace list
}  // namespace

const TableKind kIdleTable = {.name = "idle",
                              .title = "Time in which the GPU did nothing, by cause",
                              .answers = "when the GPU did nothing, by cause",
                              .columns = &cause::col,
                              .rank_rows = cause::RankRows,
                              .before = cause::Before,
                              .derive = cause::Derive};
const TableKind kIdleGapsTable = {.name = "idle-gaps",
                                  .title = "The largest stretches in which the GPU did nothing",
                                  .answers = "the largest idle gaps: where, when, what the host did",
                                  .columns = &list::col,
                                  .rank_rows = list::RankRows,
                                  .before = list::Longer,
                                  .list = true};

}  // namespace lockstep::tables
