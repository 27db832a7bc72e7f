// Which streams wait for which, and how long that delays work.

#include <algorithm>
#include <map>
#include <tuple>

#include "analysis/gpu/device_gaps.h"
#include "analysis/gpu/stream_waits.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"

namespace lockstep::tables {
namespace {
namespace stream_wait {

const struct Columns : TableColumns {
  Column device = Add("device", kId, "device, on ranks that use several", kKey);
  Column stream = Add("stream", kId, "stream that waits", kKey);
  Column waits_for = Add("waits_for", kId, "stream that recorded the event", kKey);
  Column for_class = Add("for", kText, "class of the operation that was waited for", kKey);
  Column waits = Add("waits", kCount, "operations that began in the window behind such a wait", kSum);
  Column held = Add("held", kCount, "of these, those that it held back", kSum);
  Column held_time =
      Add("held_ns", kNs,
          "by so much in all: from when they were launched and their stream was free to the end waited for", kSum);
  Column mean = Add("mean_ns", kNs, "per operation held back");
  Column max = Add("max_ns", kNs, "the largest", kMax);
  Column share = Add("share", kFraction, "held_in_window_ns of the window; streams wait side by side");
  Column in_window = AddDetail("held_in_window_ns", kNs,
                               "part of held_ns in the window: what begins in it may have been held back before", kSum);
  Column window = AddDetail("window_ns", kNs, "the window", kSum);
} col;

std::string_view ClassName(merge::KernelClass cls) {
  switch (cls) {
    case merge::KernelClass::kCompute:
      return "compute";
    case merge::KernelClass::kComm:
      return "communication";
    default:
      return "copy";
  }
}

// Ranks that lack a row have their windows all the same.
void Derive(TableRow& row, const TableTotals& totals) {
  row[col.window] = Int(TotalOf(totals, "window_ns"));
  if (IntOf(row[col.held]) > 0) row[col.mean] = Int(Mean(IntOf(row[col.held_time]), IntOf(row[col.held])));
  row[col.share] = Share(IntOf(row[col.in_window]), IntOf(row[col.window]));
}

bool Longer(const TableRow& a, const TableRow& b) {
  return InOrder(
      a, b,
      {Down(col.held_time), Down(col.waits), Up(col.device), Up(col.stream), Up(col.waits_for), Up(col.for_class)});
}

void RankRows(const gpu::RankView& rank, const TableOptions&, Table& table) {
  const gpu::DeviceActivity activity(rank);
  const std::vector<gpu::GpuOp>& ops = activity.timeline.ops;
  table.totals["window_ns"] += Total(activity.windows);
  if (ops.empty()) return table.Note(gpu::NoGpuEvents());
  const gpu::StreamWaits waits = gpu::FindStreamWaits(rank.tables, activity.timeline);
  if (!waits.told) return table.Note("the trace does not contain which streams waited");
  struct Sum {
    std::int64_t waits = 0, held = 0, held_ns = 0, max_ns = 0;
    std::vector<Interval> held_back;
  };
  std::map<std::tuple<std::uint16_t, std::uint32_t, std::uint32_t, std::string_view>, Sum> sums;
  for (std::uint32_t i = 0; i < ops.size(); ++i) {
    if (waits.held_by[i] == schema::kNone || !rank.InWindow(ops[i].begin_ns)) continue;
    const gpu::GpuStream& stream = activity.timeline.streams[ops[i].stream];
    Sum& sum = sums[{stream.device, stream.stream, rank.tables.sync.record_stream[waits.wait_of[i]],
                     ClassName(ops[waits.held_by[i]].cls)}];
    ++sum.waits;
    sum.held += waits.held_ns[i] > 0;
    sum.held_ns += waits.held_ns[i];
    sum.max_ns = std::max(sum.max_ns, waits.held_ns[i]);
    const std::int64_t until = ops[waits.held_by[i]].end_ns;
    if (waits.held_ns[i] > 0) sum.held_back.push_back({until - waits.held_ns[i], until});
  }
  const bool several = activity.timeline.Devices().size() > 1;
  for (auto& [key, sum] : sums) {
    const auto& [device, stream, waits_for, what] = key;
    TableRow& row = table.AddRow(rank.rank);
    row[col.device] = IntOrUnknown(device, several);
    row[col.stream] = Int(stream);
    row[col.waits_for] = Int(waits_for);
    row[col.for_class] = Text(what);
    row[col.waits] = Int(sum.waits);
    row[col.held] = Int(sum.held);
    row[col.held_time] = Int(sum.held_ns);
    row[col.max] = Int(sum.max_ns);
    row[col.in_window] = Int(Total(Intersect(Normalize(std::move(sum.held_back)), activity.windows)));
  }
}

}  // namespace stream_wait
}  // namespace

const TableKind kStreamWaitsTable = {.name = "stream-waits",
                                     .title = "Streams that wait for other streams",
                                     .answers = "which streams wait for which, and how long that holds work back",
                                     .columns = &stream_wait::col,
                                     .rank_rows = stream_wait::RankRows,
                                     .before = stream_wait::Longer,
                                     .derive = stream_wait::Derive};

}  // namespace lockstep::tables
