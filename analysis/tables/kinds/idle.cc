// When the GPU did nothing, and why: sums by cause, and the largest gaps.

#include <algorithm>
#include <array>

#include "analysis/core/step_names.h"
#include "analysis/gpu/device_gaps.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"

namespace lockstep::tables {
namespace {

namespace cause {

const struct Columns : TableColumns {
  Column device = Add("device", kId, "device, on ranks that use several", kKey);
  Column cause = Add("cause", kText,
                     "input, before_forward, sync, memory, copy, load, communication, launch, call, operator, between, "
                     "host_unknown, stream_wait, start, not_started, launch_unknown, edge_of_trace; all: their sum",
                     kKey);
  Column count = Add("count", kCount, "gaps with such a part; all: gaps, no stream of the device busy", kSum);
  Column total = Add("total_ns", kNs, "the time of these parts within the window", kSum);
  Column of_idle = Add("share_of_idle", kFraction, "of idle_ns");
  Column of_window = Add("share_of_window", kFraction, "of window_ns");
  Column largest = Add("largest_ns", kNs, "most of it in one gap", kMax);
  Column idle =
      Add("idle_ns", kNs, "idle time of the rank's devices, the same in each of its rows; all: of all ranks", kSum);
  Column window = Add("window_ns", kNs,
                      "the rank's window times its devices, the same in each of its rows; all: of all ranks", kSum);
} col;

constexpr std::string_view kAll = "all";

// Over all devices and ranks, whether or not they have this row.
void Derive(TableRow& row, const TableTotals& totals) {
  row[col.idle] = Int(TotalOf(totals, "idle_ns"));
  row[col.window] = Int(TotalOf(totals, "window_ns"));
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
    void Add(std::int64_t ns) {
      ++count;
      total_ns += ns;
      largest_ns = std::max(largest_ns, ns);
    }
  };
  auto gap = found.gaps.begin();
  for (const gpu::DeviceGaps::Device& device : found.devices) {
    table.totals["idle_ns"] += device.idle_ns;
    table.totals["window_ns"] += device.window_ns;
    std::array<Sum, gpu::kPartKinds + 1> sums;
    for (; gap != found.gaps.end() && gap->device == device.device; ++gap) {
      const auto of_gap = gpu::NsByKind(found, *gap);
      for (std::size_t i = 0; i < gpu::kPartKinds; ++i)
        if (of_gap[i] > 0) sums[i].Add(of_gap[i]);
      sums[gpu::kPartKinds].Add(gap->at.end - gap->at.begin);
    }
    for (std::size_t i = 0; i <= gpu::kPartKinds; ++i) {
      if (sums[i].count == 0 && i < gpu::kPartKinds) continue;
      TableRow& row = table.AddRow(rank.rank);
      row[col.device] = IntOrUnknown(device.device, found.devices.size() > 1);
      row[col.cause] = Text(i < gpu::kPartKinds ? gpu::PartKindName(static_cast<gpu::PartKind>(i)) : kAll);
      row[col.count] = Int(sums[i].count);
      row[col.total] = Int(sums[i].total_ns);
      row[col.largest] = Int(sums[i].largest_ns);
    }
  }
}

}  // namespace cause

namespace gap_list {

struct Columns : TableColumns {
  explicit Columns(const char* first) : TableColumns(first) {
    for (std::size_t i = 0; i < gpu::kPartKinds; ++i) {
      const std::string_view name = gpu::PartKindName(static_cast<gpu::PartKind>(i));
      parts[i] = AddDetail(std::string(name) + "_ns", kNs, "part of it, as in idle: " + std::string(name));
    }
  }
  Column device = Add("device", kId, "device");
  Column at = Add("at_ns", kNs, "begin, since the window's");
  Column gap = Add("gap_ns", kNs, "length within the window");
  Column cause = Add("cause", kText, "what most of it is, as in idle");
  Column of_cause = Add("of_it_ns", kNs, "so much of it");
  Column step = Add("step", kId, "step in which it began");
  Column host = Add(
      "host", kText,
      "innermost range, function or operator that the host was in for most of that; none in a profiler's step alone");
  Column call = Add("call", kText, "runtime call that it was in for most of that, or that delayed the launch");
  Column before = AddDetail("before", kText, "what ended last before it");
  Column after = Add("after", kText, "what began at its end");
  Column begin = AddDetail("begin_ns", kId, "begin, rank clock");
  std::array<Column, gpu::kPartKinds> parts{};
};
const Columns col("rank");

// The longest part of the kind that fills most of the gap.
const gpu::GapPart* Foremost(const gpu::DeviceGaps& found, const gpu::Gap& gap, std::size_t kind) {
  const gpu::GapPart* longest = nullptr;
  for (const gpu::GapPart& part : found.PartsOf(gap))
    if (static_cast<std::size_t>(part.kind) == kind &&
        (longest == nullptr || part.at.end - part.at.begin > longest->at.end - longest->at.begin))
      longest = &part;
  return longest;
}

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
  // Names are only made for rows that can be shown.
  const std::size_t wanted = RowsWanted(options, found.gaps.size());
  std::partial_sort(found.gaps.begin(), found.gaps.begin() + static_cast<std::ptrdiff_t>(wanted), found.gaps.end(),
                    longer);
  found.gaps.resize(wanted);
  for (const gpu::Gap& gap : found.gaps) {
    TableRow& row = table.AddRow(rank.rank);
    row[col.device] = Int(gap.device);
    row[col.at] = Int(gap.at.begin - activity.windows.front().begin);
    row[col.gap] = Int(gap.at.end - gap.at.begin);
    const auto ns = gpu::NsByKind(found, gap);
    for (std::size_t i = 0; i < gpu::kPartKinds; ++i) row[col.parts[i]] = Int(ns[i]);
    const auto most = static_cast<std::size_t>(std::max_element(ns.begin(), ns.end()) - ns.begin());
    row[col.cause] = Text(gpu::PartKindName(static_cast<gpu::PartKind>(most)));
    row[col.of_cause] = Int(ns[most]);
    if (const gpu::RankView::Step* step = rank.StepAt(gap.at.begin)) row[col.step] = Int(step->index);
    if (const gpu::GapPart* part = Foremost(found, gap, most)) {
      if (part->range != schema::kNone)
        if (const std::string_view name = rank.Text(rank.tables.ranges.name[part->range]);
            !analysis::IsProfilerStep(name))
          row[col.host] = Text(name);
      if (part->blocking != schema::kNone)
        row[col.call] = gpu::BlockingName(rank, found.blocking[part->blocking]);
      else if (part->call != schema::kNone)
        row[col.call] = Text(rank.Text(rank.tables.api.name[part->call]));
    }
    if (gap.before != schema::kNone) row[col.before] = gpu::OpName(rank, ops[gap.before]);
    if (gap.after != schema::kNone) row[col.after] = gpu::OpName(rank, ops[gap.after]);
    row[col.begin] = Int(gap.at.begin);
  }
}

}  // namespace gap_list
}  // namespace

const TableKind kIdleTable = {
    .name = "idle",
    .title = "Time in which the GPU did nothing, by cause; shares are of all devices of the rank, or of all ranks",
    .answers = "when the GPU did nothing, by cause",
    .columns = &cause::col,
    .rank_rows = cause::RankRows,
    .before = cause::Before,
    .derive = cause::Derive};
const TableKind kIdleGapsTable = {.name = "idle-gaps",
                                  .title = "The largest stretches in which the GPU did nothing",
                                  .answers = "the largest idle gaps: where, when, what the host did",
                                  .columns = &gap_list::col,
                                  .rank_rows = gap_list::RankRows,
                                  .before = gap_list::Longer,
                                  .list = true};

}  // namespace lockstep::tables
