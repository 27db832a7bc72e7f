// Which streams wait for which, and how long that holds work back.

#include <algorithm>
#include <map>
#include <tuple>

#include "analysis/gpu/device_gaps.h"
#include "analysis/gpu/stream_waits.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"

namespace lockstep::tables {
namespace {

enum Column : std::size_t {
  kRank,
  kDevice,
  kStream,
  kWaitsFor,
  kFor,
  kWaits,
  kHeld,
  kHeldTime,
  kMean,
  kMax,
  kShare,
  kWindow,
};

Table Head() {
  return {
      "stream-waits",
      "Streams that wait for other streams",
      {{"rank", ColumnKind::kId, "rank; all: the ranks together"},
       {"device", ColumnKind::kId, "device, on ranks that use several", Pool::kKey},
       {"stream", ColumnKind::kId, "stream that waits", Pool::kKey},
       {"waits_for", ColumnKind::kId, "stream that recorded the event", Pool::kKey},
       {"for", ColumnKind::kText, "class of the operation that was waited for", Pool::kKey},
       {"waits", ColumnKind::kCount, "operations that began in the window behind such a wait", Pool::kSum},
       {"held", ColumnKind::kCount, "of these, those that it held back", Pool::kSum},
       {"held_ns", ColumnKind::kNs,
        "by so much in all: from when they were launched and their stream was free to the end waited for", Pool::kSum},
       {"mean_ns", ColumnKind::kNs, "per operation held back"},
       {"max_ns", ColumnKind::kNs, "the largest", Pool::kMax},
       {"share", ColumnKind::kFraction, "of the window; streams wait side by side"},
       {"window_ns", ColumnKind::kNs, "the window", Pool::kSum, true}},
      {},
      {}};
}

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

void Derive(std::vector<Cell>& row) {
  if (IntOf(row[kHeld]) > 0) row[kMean] = Int(Mean(IntOf(row[kHeldTime]), IntOf(row[kHeld])));
  row[kShare] = Share(IntOf(row[kHeldTime]), IntOf(row[kWindow]));
}

bool Longer(const std::vector<Cell>& a, const std::vector<Cell>& b) {
  const auto key = [](const std::vector<Cell>& row) {
    return std::tuple(-IntOf(row[kHeldTime]), -IntOf(row[kWaits]), IntOf(row[kDevice], -1), IntOf(row[kStream]),
                      IntOf(row[kWaitsFor]), TextOfCell(row[kFor]));
  };
  return key(a) < key(b);
}

void RankRows(const gpu::RankView& rank, const TableOptions&, Table& table) {
  const gpu::DeviceActivity activity(rank);
  const std::vector<gpu::GpuOp>& ops = activity.timeline.ops;
  const std::int64_t window = Total(activity.windows);
  table.totals["window_ns"] += window;
  if (ops.empty()) {
    table.notes.emplace_back(gpu::NoGpuEvents());
    return;
  }
  const gpu::StreamWaits waits = gpu::FindStreamWaits(rank.tables, activity.timeline);
  if (!waits.told) {
    table.notes.emplace_back("the trace does not contain which streams waited");
    return;
  }
  struct Sum {
    std::int64_t waits = 0, held = 0, held_ns = 0, max_ns = 0;
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
  }
  const bool several = activity.timeline.Devices().size() > 1;
  for (const auto& [key, sum] : sums) {
    const auto& [device, stream, waits_for, what] = key;
    std::vector<Cell> row(kWindow + 1);
    row[kRank] = Int(rank.rank);
    row[kDevice] = IntOrUnknown(device, several);
    row[kStream] = Int(stream);
    row[kWaitsFor] = Int(waits_for);
    row[kFor] = Text(what);
    row[kWaits] = Int(sum.waits);
    row[kHeld] = Int(sum.held);
    row[kHeldTime] = Int(sum.held_ns);
    row[kMax] = Int(sum.max_ns);
    row[kWindow] = Int(window);
    Derive(row);
    table.rows.push_back(std::move(row));
  }
  std::stable_sort(table.rows.begin(), table.rows.end(), Longer);
}

// Ranks that lack a row have their windows all the same.
void Finish(const merge::Timeline&, const TableOptions&, Table& table) {
  auto end = table.rows.begin();
  for (; end != table.rows.end() && IsPooled(*end); ++end) {
    (*end)[kWindow] = Int(table.totals["window_ns"]);
    Derive(*end);
  }
  std::stable_sort(table.rows.begin(), end, Longer);
}

}  // namespace

const TableKind kStreamWaitsTable = {"stream-waits", "which streams wait for which, and how long that holds work back",
                                     Head, RankRows, Finish};

}  // namespace lockstep::tables
