// Copies and memsets: how much, how fast, which ones block; and the longest of them.

#include <algorithm>
#include <map>
#include <tuple>

#include "analysis/gpu/device_gaps.h"
#include "analysis/rules/causes.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/describe.h"
#include "analysis/tables/engine/kinds.h"

namespace lockstep::tables {
namespace {

using schema::kNone;

Cell HostMemory(std::uint8_t host_memory) {
  switch (host_memory) {
    case 1:
      return Text("pageable");
    case 2:
      return Text("pinned");
    case 3:
      return Text("managed");
    default:
      return {};
  }
}
// bytes in ns -> bytes/s.
double Rate(double bytes, std::int64_t ns) { return bytes * 1e9 / static_cast<double>(ns); }

// Per row of copies: row of api that blocked for it, kNone.
std::vector<std::uint32_t> BlockedCalls(const schema::RankTables& tables, const gpu::LaunchIndex& launches) {
  std::vector<std::uint32_t> calls(tables.copies.rows(), kNone);
  for (const gpu::BlockingCall& call : gpu::FindBlockingCalls(tables, launches))
    if (call.copy != kNone) calls[call.copy] = call.api;
  return calls;
}

namespace sums {

const struct Columns : TableColumns {
  Column device = Add("device", kId, "device, on ranks that use several", kKey);
  Column kind = Add("kind", kText, "direction, or memset", kKey);
  Column memory = Add("host_memory", kText, "pageable, pinned, managed", kKey);
  Column count = Add("count", kCount, "copies that began in the window", kSum);
  Column bytes = Add("bytes", kBytes, "moved or set", kSum);
  Column total = Add("total_ns", kNs, "sum of their durations", kSum);
  Column rate = Add("bytes_per_s", kNumber, "bytes over total: of one copy");
  Column active = AddDetail("active_ns", kNs, "time with at least one of them running", kSum);
  Column active_rate =
      AddDetail("active_bytes_per_s", kNumber, "bytes over active: copies side by side summed, mean over time");
  Column p50_rate = AddDetail("p50_bytes_per_s", kNumber,
                              "the same as median over time: not more for half of the active time; not over ranks");
  Column max_rate = Add("max_bytes_per_s", kNumber, "most at one time", kMax);
  Column blocking = Add("blocking_count", kCount, "copies whose call returned only when they were done", kSum);
  Column blocking_time = Add("blocking_ns", kNs, "the host's time in those calls", kSum);
  Column untimed = AddDetail("untimed_count", kCount, "copies of duration 0 in the trace, no part of any rate", kSum);
  Column hint = Add(
      "hint", kText,
      "pageable: pinned memory is faster and does not block; blocking: the host waits; small: under 64 KiB on average");
  Column window = AddDetail("window_ns", kNs, "the window", kSum);
} col;

void Derive(TableRow& row, const TableTotals&) {
  const std::int64_t bytes = IntOf(row[col.bytes]), total = IntOf(row[col.total]), active = IntOf(row[col.active]);
  const std::int64_t count = IntOf(row[col.count]);
  // Nothing copies no bytes: their number is not in the trace (ROCm's copies on the device and memsets).
  if (bytes > 0 && total > 0) row[col.rate] = Rate(static_cast<double>(bytes), total);
  if (bytes > 0 && active > 0) row[col.active_rate] = Rate(static_cast<double>(bytes), active);
  const double worth = rules::kCopyHintShare * static_cast<double>(IntOf(row[col.window]));
  std::string hint;
  const auto add = [&](bool applies, const char* word) {
    if (applies) hint += (hint.empty() ? "" : " ") + std::string(word);
  };
  const auto total_ns = static_cast<double>(total);
  add(TextOfCell(row[col.memory]) == "pageable" && total_ns > worth, "pageable");
  add(static_cast<double>(IntOf(row[col.blocking_time])) > worth, "blocking");
  add(bytes > 0 && count >= rules::kCopySmallCount && bytes < count * rules::kCopySmallBytes && total_ns > worth,
      "small");
  row[col.hint] = hint.empty() ? Cell() : Cell(hint);
}

struct Sum {
  std::int64_t count = 0, bytes = 0, total_ns = 0, blocking = 0, blocking_ns = 0, untimed = 0;
  std::vector<std::uint32_t> rows;
};

// The rates of simultaneous copies add up.
struct RateCurve {
  std::int64_t active_ns = 0;
  double p50 = 0, most = 0;
};
RateCurve CurveOf(const schema::Copies& copies, std::vector<std::uint32_t>& rows) {
  std::sort(rows.begin(), rows.end(), [&](std::uint32_t a, std::uint32_t b) {
    return copies.begin_ns[a] != copies.begin_ns[b] ? copies.begin_ns[a] < copies.begin_ns[b] : a < b;
  });
  RateCurve curve;
  std::vector<Weighted> held;
  std::vector<std::uint32_t> running;
  const auto end_of = [&](std::uint32_t row) { return copies.begin_ns[row] + copies.duration_ns[row]; };
  std::int64_t now = 0;
  const auto advance = [&](std::int64_t until) {
    while (!running.empty() && now < until) {
      std::int64_t next = until;
      double rate = 0;  // Summed anew each time, because adding and subtracting would accumulate rounding errors.
      for (const std::uint32_t row : running) {
        next = std::min(next, end_of(row));
        rate += Rate(static_cast<double>(copies.bytes[row]), copies.duration_ns[row]);
      }
      if (next > now) {
        held.push_back({rate, next - now});
        curve.active_ns += next - now;
        curve.most = std::max(curve.most, rate);
      }
      now = next;
      std::erase_if(running, [&](std::uint32_t row) { return end_of(row) <= now; });
    }
    now = until;
  };
  for (const std::uint32_t row : rows) {
    advance(copies.begin_ns[row]);
    running.push_back(row);
  }
  advance(std::numeric_limits<std::int64_t>::max());
  curve.p50 = WeightedQuantile(held, 0.5);
  return curve;
}

bool Larger(const TableRow& a, const TableRow& b) {
  return InOrder(a, b, {Down(col.total), Down(col.count), Up(col.device), Up(col.kind), Up(col.memory)});
}

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  const auto& copies = rank.tables.copies;
  if (copies.rows() == 0) return table.Note(rank.tables.kernels.rows() == 0 ? gpu::NoGpuEvents() : "no copies");
  const gpu::DeviceActivity activity(rank);
  const auto blocked = BlockedCalls(rank.tables, activity.launches);
  std::map<std::tuple<std::uint16_t, std::uint8_t, std::uint8_t>, Sum> sums;
  for (std::uint32_t row = 0; row < copies.rows(); ++row) {
    if (!rank.InWindow(copies.begin_ns[row]) || !Passes(gpu::CopyKindName(copies.kind[row]), options)) continue;
    Sum& sum = sums[{copies.device[row], copies.kind[row], copies.host_memory[row]}];
    ++sum.count;
    sum.bytes += static_cast<std::int64_t>(copies.bytes[row]);
    sum.total_ns += copies.duration_ns[row];
    if (copies.duration_ns[row] > 0)
      sum.rows.push_back(row);
    else
      ++sum.untimed;
    if (blocked[row] == kNone) continue;
    ++sum.blocking;
    sum.blocking_ns += rank.tables.api.duration_ns[blocked[row]];
  }
  const bool devices = activity.timeline.Devices().size() > 1;
  for (auto& [key, sum] : sums) {
    TableRow& row = table.AddRow(rank.rank);
    row[col.device] = IntOrUnknown(std::get<0>(key), devices);
    row[col.kind] = Text(gpu::CopyKindName(std::get<1>(key)));
    row[col.memory] = HostMemory(std::get<2>(key));
    row[col.count] = Int(sum.count);
    row[col.bytes] = IntOrUnknown(sum.bytes, sum.bytes > 0);
    row[col.total] = Int(sum.total_ns);
    row[col.blocking] = Int(sum.blocking);
    row[col.blocking_time] = Int(sum.blocking_ns);
    row[col.untimed] = Int(sum.untimed);
    row[col.window] = Int(Total(activity.windows));
    const RateCurve curve = CurveOf(copies, sum.rows);
    row[col.active] = Int(curve.active_ns);
    if (sum.bytes > 0 && curve.active_ns > 0) {
      row[col.p50_rate] = curve.p50;
      row[col.max_rate] = curve.most;
    }
  }
}

}  // namespace sums

namespace copy_list {

const struct Columns : TableColumns {
  using TableColumns::TableColumns;
  Column device = Add("device", kId, "device");
  Column stream = AddDetail("stream", kId, "stream");
  Column at = Add("at_ns", kNs, "begin, since the window's");
  Column duration = Add("duration_ns", kNs, "duration");
  Column kind = Add("kind", kText, "direction, or memset");
  Column memory = Add("host_memory", kText, "pageable, pinned, managed");
  Column bytes = Add("bytes", kBytes, "moved or set");
  Column rate = Add("bytes_per_s", kNumber, "bandwidth");
  Column blocking = Add("blocking", kText, "yes: its call returned only when it was done");
  Column step = Add("step", kId, "step in which it began");
  Column range = Add("range", kText, "innermost range around its call");
  Column call = Add("call", kText, "the call");
  Column begin = AddDetail("begin_ns", kId, "begin, rank clock");
} col("rank");

bool Longer(const TableRow& a, const TableRow& b) {
  return InOrder(a, b,
                 {Down(col.duration), Down(col.bytes), Up(col.rank), Up(col.begin), Up(col.device), Up(col.stream)});
}

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  const auto& copies = rank.tables.copies;
  const auto& api = rank.tables.api;
  if (copies.rows() == 0) return table.Note(rank.tables.kernels.rows() == 0 ? gpu::NoGpuEvents() : "no copies");
  const gpu::DeviceActivity activity(rank);
  const auto blocked = BlockedCalls(rank.tables, activity.launches);
  std::vector<std::uint32_t> rows;
  for (std::uint32_t row = 0; row < copies.rows(); ++row)
    if (rank.InWindow(copies.begin_ns[row]) && Passes(gpu::CopyKindName(copies.kind[row]), options))
      rows.push_back(row);
  table.totals[std::string(kListedRows)] += static_cast<std::int64_t>(rows.size());
  const std::size_t wanted = RowsWanted(options, rows.size());
  std::partial_sort(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(wanted), rows.end(),
                    [&](std::uint32_t a, std::uint32_t b) {
                      return std::tuple(-copies.duration_ns[a], ~copies.bytes[a], copies.begin_ns[a], a) <
                             std::tuple(-copies.duration_ns[b], ~copies.bytes[b], copies.begin_ns[b], b);
                    });
  rows.resize(wanted);
  const gpu::RangeNest nest(rank.tables);
  for (const std::uint32_t copy : rows) {
    TableRow& row = table.AddRow(rank.rank);
    row[col.device] = Int(copies.device[copy]);
    row[col.stream] = Int(copies.stream[copy]);
    if (!activity.windows.empty()) row[col.at] = Int(copies.begin_ns[copy] - activity.windows.front().begin);
    row[col.duration] = Int(copies.duration_ns[copy]);
    row[col.kind] = Text(gpu::CopyKindName(copies.kind[copy]));
    row[col.memory] = HostMemory(copies.host_memory[copy]);
    row[col.bytes] = IntOrUnknown(static_cast<std::int64_t>(copies.bytes[copy]), copies.bytes[copy] > 0);
    if (copies.bytes[copy] > 0 && copies.duration_ns[copy] > 0)
      row[col.rate] = Rate(static_cast<double>(copies.bytes[copy]), copies.duration_ns[copy]);
    row[col.blocking] = Text(blocked[copy] != kNone ? "yes" : "no");
    if (const gpu::RankView::Step* step = rank.StepAt(copies.begin_ns[copy])) row[col.step] = Int(step->index);
    const std::uint32_t call = activity.launches.of_copy[copy];
    if (call != kNone) {
      row[col.call] = Text(rank.Text(api.name[call]));
      const std::uint32_t range = nest.At(api.thread[call], api.begin_ns[call]);
      if (range != kNone) row[col.range] = Text(rank.Text(rank.tables.ranges.name[range]));
    }
    row[col.begin] = Int(copies.begin_ns[copy]);
  }
}

}  // namespace copy_list
}  // namespace

const TableKind kCopiesTable = {.name = "copies",
                                .title = "Copies and memsets",
                                .answers = "bytes, bandwidth and blocking of copies, by kind",
                                .columns = &sums::col,
                                .rank_rows = sums::RankRows,
                                .before = sums::Larger,
                                .derive = sums::Derive};
const TableKind kCopyListTable = {.name = "copy-list",
                                  .title = "The longest copies",
                                  .answers = "the longest copies: where, when, by whom",
                                  .columns = &copy_list::col,
                                  .rank_rows = copy_list::RankRows,
                                  .before = copy_list::Longer,
                                  .list = true};

}  // namespace lockstep::tables
