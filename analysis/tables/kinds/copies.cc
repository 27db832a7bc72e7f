// Copies and memsets: how much, how fast, which ones block; and the longest of them.

#include <algorithm>
#include <map>
#include <tuple>

#include "analysis/gpu/device_gaps.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/describe.h"
#include "analysis/tables/engine/kinds.h"
#include "analysis/tables/engine/row_lists.h"

namespace lockstep::tables {
namespace {

constexpr std::uint32_t kNone = schema::kNone;

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

// What is worth a hint: a thousandth of the window in copies that need not be, copies
// of less than 64 KiB on average, which launching costs more than moving.
constexpr double kWorthShare = 0.001;
constexpr std::int64_t kSmallBytes = 65'536, kManyCopies = 10;

enum Column : std::size_t {
  kRank,
  kDevice,
  kKind,
  kMemory,
  kCount,
  kBytes,
  kTotal,
  kRate,
  kActive,
  kActiveRate,
  kP50Rate,
  kMaxRate,
  kBlocking,
  kBlockingTime,
  kUntimed,
  kHint,
  kWindow,
};

Table Head() {
  return {"copies",
          "Copies and memsets",
          {{"rank", ColumnKind::kId, "rank; all: the ranks together"},
           {"device", ColumnKind::kId, "device, on ranks that use several", Pool::kKey},
           {"kind", ColumnKind::kText, "direction, or memset", Pool::kKey},
           {"host_memory", ColumnKind::kText, "pageable, pinned, managed", Pool::kKey},
           {"count", ColumnKind::kCount, "copies that began in the window", Pool::kSum},
           {"bytes", ColumnKind::kBytes, "moved or set", Pool::kSum},
           {"total_ns", ColumnKind::kNs, "sum of their durations", Pool::kSum},
           {"bytes_per_s", ColumnKind::kNumber, "bytes over total: of one copy"},
           {"active_ns", ColumnKind::kNs, "time with at least one of them running", Pool::kSum, true},
           {"active_bytes_per_s", ColumnKind::kNumber, "bytes over active: copies side by side summed, mean over time",
            Pool::kNone, true},
           {"p50_bytes_per_s", ColumnKind::kNumber,
            "the same as median over time: not more for half of the active time; not over ranks", Pool::kNone, true},
           {"max_bytes_per_s", ColumnKind::kNumber, "most at one time", Pool::kMax},
           {"blocking_count", ColumnKind::kCount, "copies whose call returned only when they were done", Pool::kSum},
           {"blocking_ns", ColumnKind::kNs, "the host's time in those calls", Pool::kSum},
           {"untimed_count", ColumnKind::kCount, "copies of duration 0 in the trace, no part of any rate", Pool::kSum,
            true},
           {"hint", ColumnKind::kText,
            "pageable: pinned memory is faster and does not block; blocking: the host waits; small: under 64 KiB on "
            "average"},
           {"window_ns", ColumnKind::kNs, "the window", Pool::kSum, true}},
          {},
          {}};
}

void Derive(std::vector<Cell>& row) {
  const std::int64_t bytes = IntOf(row[kBytes]), total = IntOf(row[kTotal]), active = IntOf(row[kActive]);
  const std::int64_t count = IntOf(row[kCount]);
  if (total > 0) row[kRate] = Rate(static_cast<double>(bytes), total);
  if (active > 0) row[kActiveRate] = Rate(static_cast<double>(bytes), active);
  const double worth = kWorthShare * static_cast<double>(IntOf(row[kWindow]));
  std::string hint;
  const auto add = [&](bool applies, const char* word) {
    if (applies) hint += (hint.empty() ? "" : " ") + std::string(word);
  };
  const auto total_ns = static_cast<double>(total);
  add(TextOfCell(row[kMemory]) == "pageable" && total_ns > worth, "pageable");
  add(static_cast<double>(IntOf(row[kBlockingTime])) > worth, "blocking");
  add(count >= kManyCopies && bytes < count * kSmallBytes && total_ns > worth, "small");
  row[kHint] = hint.empty() ? Cell() : Cell(hint);
}

struct Sum {
  std::int64_t count = 0, bytes = 0, total_ns = 0, blocking = 0, blocking_ns = 0, untimed = 0;
  std::vector<std::uint32_t> rows;
};

// Rates of copies side by side add up.
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
      double rate = 0;  // Summed afresh: adding and taking away would leave crumbs.
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

bool Larger(const std::vector<Cell>& a, const std::vector<Cell>& b) {
  const auto key = [](const std::vector<Cell>& row) {
    return std::tuple(-IntOf(row[kTotal]), -IntOf(row[kCount]), IntOf(row[kDevice], -1), TextOfCell(row[kKind]),
                      TextOfCell(row[kMemory]));
  };
  return key(a) < key(b);
}

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  const auto& copies = rank.tables.copies;
  if (copies.rows() == 0) {
    table.notes.emplace_back(rank.tables.kernels.rows() == 0 ? gpu::NoGpuEvents() : "no copies");
    return;
  }
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
    std::vector<Cell> row(kWindow + 1);
    row[kRank] = Int(rank.rank);
    row[kDevice] = IntOrUnknown(std::get<0>(key), devices);
    row[kKind] = Text(gpu::CopyKindName(std::get<1>(key)));
    row[kMemory] = HostMemory(std::get<2>(key));
    row[kCount] = Int(sum.count);
    row[kBytes] = Int(sum.bytes);
    row[kTotal] = Int(sum.total_ns);
    row[kBlocking] = Int(sum.blocking);
    row[kBlockingTime] = Int(sum.blocking_ns);
    row[kUntimed] = Int(sum.untimed);
    row[kWindow] = Int(Total(activity.windows));
    const RateCurve curve = CurveOf(copies, sum.rows);
    row[kActive] = Int(curve.active_ns);
    if (curve.active_ns > 0) {
      row[kP50Rate] = curve.p50;
      row[kMaxRate] = curve.most;
    }
    Derive(row);
    table.rows.push_back(std::move(row));
  }
  std::stable_sort(table.rows.begin(), table.rows.end(), Larger);
}

void Finish(const merge::Timeline&, const TableOptions&, Table& table) {
  auto end = table.rows.begin();
  for (; end != table.rows.end() && IsPooled(*end); ++end) Derive(*end);
  std::stable_sort(table.rows.begin(), end, Larger);
}

}  // namespace sums

namespace list {

enum Column : std::size_t {
  kRank,
  kDevice,
  kStream,
  kAt,
  kDuration,
  kKind,
  kMemory,
  kBytes,
  kRate,
  kBlocking,
  kStep,
  kRange,
  kCall,
  kBegin,
};

Table Head() {
  return {"copy-list",
          "The longest copies",
          {{"rank", ColumnKind::kId, "rank"},
           {"device", ColumnKind::kId, "device"},
           {"stream", ColumnKind::kId, "stream", Pool::kNone, true},
           {"at_ns", ColumnKind::kNs, "begin, since the window's"},
           {"duration_ns", ColumnKind::kNs, "duration"},
           {"kind", ColumnKind::kText, "direction, or memset"},
           {"host_memory", ColumnKind::kText, "pageable, pinned, managed"},
           {"bytes", ColumnKind::kBytes, "moved or set"},
           {"bytes_per_s", ColumnKind::kNumber, "bandwidth"},
           {"blocking", ColumnKind::kText, "yes: its call returned only when it was done"},
           {"step", ColumnKind::kId, "step in which it began"},
           {"range", ColumnKind::kText, "innermost range around its call"},
           {"call", ColumnKind::kText, "the call"},
           {"begin_ns", ColumnKind::kId, "begin, rank clock", Pool::kNone, true}},
          {},
          {}};
}

bool Longer(const std::vector<Cell>& a, const std::vector<Cell>& b) {
  const auto key = [](const std::vector<Cell>& row) {
    return std::tuple(-IntOf(row[kDuration]), -IntOf(row[kBytes]), IntOf(row[kRank]), IntOf(row[kBegin]),
                      IntOf(row[kDevice]), IntOf(row[kStream]));
  };
  return key(a) < key(b);
}

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  const auto& copies = rank.tables.copies;
  const auto& api = rank.tables.api;
  if (copies.rows() == 0) {
    table.notes.emplace_back(rank.tables.kernels.rows() == 0 ? gpu::NoGpuEvents() : "no copies");
    return;
  }
  const gpu::DeviceActivity activity(rank);
  const auto blocked = BlockedCalls(rank.tables, activity.launches);
  std::vector<std::uint32_t> rows;
  for (std::uint32_t row = 0; row < copies.rows(); ++row)
    if (rank.InWindow(copies.begin_ns[row]) && Passes(gpu::CopyKindName(copies.kind[row]), options))
      rows.push_back(row);
  table.totals[std::string(kListedRows)] += static_cast<std::int64_t>(rows.size());
  const std::size_t wanted = options.top == 0 ? rows.size() : std::min(options.top, rows.size());
  std::partial_sort(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(wanted), rows.end(),
                    [&](std::uint32_t a, std::uint32_t b) {
                      return std::tuple(-copies.duration_ns[a], ~copies.bytes[a], copies.begin_ns[a], a) <
                             std::tuple(-copies.duration_ns[b], ~copies.bytes[b], copies.begin_ns[b], b);
                    });
  rows.resize(wanted);
  const gpu::RangeNest nest(rank.tables);
  for (const std::uint32_t copy : rows) {
    std::vector<Cell> row(kBegin + 1);
    row[kRank] = Int(rank.rank);
    row[kDevice] = Int(copies.device[copy]);
    row[kStream] = Int(copies.stream[copy]);
    if (!activity.windows.empty()) row[kAt] = Int(copies.begin_ns[copy] - activity.windows.front().begin);
    row[kDuration] = Int(copies.duration_ns[copy]);
    row[kKind] = Text(gpu::CopyKindName(copies.kind[copy]));
    row[kMemory] = HostMemory(copies.host_memory[copy]);
    row[kBytes] = Int(static_cast<std::int64_t>(copies.bytes[copy]));
    if (copies.duration_ns[copy] > 0)
      row[kRate] = Rate(static_cast<double>(copies.bytes[copy]), copies.duration_ns[copy]);
    row[kBlocking] = Text(blocked[copy] != kNone ? "yes" : "no");
    if (const gpu::RankView::Step* step = StepAt(rank, copies.begin_ns[copy])) row[kStep] = Int(step->index);
    const std::uint32_t call = activity.launches.of_copy[copy];
    if (call != kNone) {
      row[kCall] = Text(rank.Text(api.name[call]));
      const std::uint32_t range = nest.At(api.thread[call], api.begin_ns[call]);
      if (range != kNone) row[kRange] = Text(rank.Text(rank.tables.ranges.name[range]));
    }
    row[kBegin] = Int(copies.begin_ns[copy]);
    table.rows.push_back(std::move(row));
  }
}

void Finish(const merge::Timeline&, const TableOptions& options, Table& table) { KeepLargest(options, Longer, table); }

}  // namespace list
}  // namespace

const TableKind kCopiesTable = {"copies", "bytes, bandwidth and blocking of copies, by kind", sums::Head,
                                sums::RankRows, sums::Finish};
const TableKind kCopyListTable = {"copy-list", "the longest copies: where, when, by whom", list::Head, list::RankRows,
                                  list::Finish};

}  // namespace lockstep::tables
