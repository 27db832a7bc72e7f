// When the GPU did nothing, and why: sums by cause, and the largest gaps.

#include <algorithm>
#include <array>

#include "analysis/gpu/device_gaps.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"
#include "analysis/tables/engine/row_lists.h"

namespace lockstep::tables {
namespace {

namespace cause {

enum Column : std::size_t { kRank, kDevice, kCause, kCount, kTotal, kOfIdle, kOfWindow, kLargest, kIdle, kWindow };

constexpr std::string_view kAll = "all";

Table Head() {
  return {"idle",
          "Time in which the GPU did nothing, by cause",
          {{"rank", ColumnKind::kId, "rank; all: the ranks together"},
           {"device", ColumnKind::kId, "device, on ranks that use several", Pool::kKey},
           {"cause", ColumnKind::kText,
            "host, input, sync, collective, stream_wait, launch_latency, launch_unknown, edge_of_trace; all: their sum",
            Pool::kKey},
           {"count", ColumnKind::kCount, "gaps: no stream of the device busy", Pool::kSum},
           {"total_ns", ColumnKind::kNs, "their time within the window", Pool::kSum},
           {"share_of_idle", ColumnKind::kFraction, "of the device's idle time"},
           {"share_of_window", ColumnKind::kFraction, "of the window"},
           {"largest_ns", ColumnKind::kNs, "the largest one", Pool::kMax},
           {"idle_ns", ColumnKind::kNs, "the device's idle time", Pool::kSum, true},
           {"window_ns", ColumnKind::kNs, "the window", Pool::kSum, true}},
          {},
          {}};
}

void Shares(std::vector<Cell>& row) {
  row[kOfIdle] = Share(IntOf(row[kTotal]), IntOf(row[kIdle]));
  row[kOfWindow] = Share(IntOf(row[kTotal]), IntOf(row[kWindow]));
}

bool Before(const std::vector<Cell>& a, const std::vector<Cell>& b) {
  const auto key = [](const std::vector<Cell>& row) {
    return std::tuple(IntOf(row[kDevice], -1), TextOfCell(row[kCause]) != kAll, -IntOf(row[kTotal]),
                      TextOfCell(row[kCause]));
  };
  return key(a) < key(b);
}

void RankRows(const gpu::RankView& rank, const TableOptions&, Table& table) {
  const gpu::DeviceActivity activity(rank);
  if (activity.timeline.ops.empty()) {
    table.notes.emplace_back(gpu::NoGpuEvents());
    return;
  }
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
      std::vector<Cell> row(kWindow + 1);
      row[kRank] = Int(rank.rank);
      row[kDevice] = IntOrUnknown(device.device, found.devices.size() > 1);
      row[kCause] = Text(i < gpu::kGapCauses ? gpu::GapCauseName(static_cast<gpu::GapCause>(i)) : kAll);
      row[kCount] = Int(sums[i].count);
      row[kTotal] = Int(sums[i].total_ns);
      row[kLargest] = Int(sums[i].largest_ns);
      row[kIdle] = Int(device.idle_ns);
      row[kWindow] = Int(device.window_ns);
      Shares(row);
      table.rows.push_back(std::move(row));
    }
  }
  std::stable_sort(table.rows.begin(), table.rows.end(), Before);
}

void Finish(const merge::Timeline&, const TableOptions&, Table& table) {
  auto end = table.rows.begin();
  for (; end != table.rows.end() && IsPooled(*end); ++end) Shares(*end);
  std::stable_sort(table.rows.begin(), end, Before);
}

}  // namespace cause

namespace list {

enum Column : std::size_t {
  kRank,
  kDevice,
  kAt,
  kGap,
  kCause,
  kStep,
  kHost,
  kCall,
  kBefore,
  kAfter,
  kBegin,
};

Table Head() {
  return {"idle-gaps",
          "The largest stretches in which the GPU did nothing",
          {{"rank", ColumnKind::kId, "rank"},
           {"device", ColumnKind::kId, "device"},
           {"at_ns", ColumnKind::kNs, "begin, since the window's"},
           {"gap_ns", ColumnKind::kNs, "length within the window"},
           {"cause", ColumnKind::kText, "as in idle"},
           {"step", ColumnKind::kId, "step in which it began"},
           {"host", ColumnKind::kText,
            "innermost range that covers at least half of the wait for the launch; of a sync the range it was called "
            "in"},
           {"call", ColumnKind::kText, "runtime call that covers at least half of it, or the sync"},
           {"before", ColumnKind::kText, "what ended last before it", Pool::kNone, true},
           {"after", ColumnKind::kText, "what began at its end"},
           {"begin_ns", ColumnKind::kId, "begin, rank clock", Pool::kNone, true}},
          {},
          {}};
}

bool Longer(const std::vector<Cell>& a, const std::vector<Cell>& b) {
  const auto key = [](const std::vector<Cell>& row) {
    return std::tuple(-IntOf(row[kGap]), IntOf(row[kRank]), IntOf(row[kBegin]), IntOf(row[kDevice]));
  };
  return key(a) < key(b);
}

void RankRows(const gpu::RankView& rank, const TableOptions& options, Table& table) {
  const gpu::DeviceActivity activity(rank);
  const auto& ops = activity.timeline.ops;
  if (ops.empty()) {
    table.notes.emplace_back(gpu::NoGpuEvents());
    return;
  }
  gpu::DeviceGaps found = gpu::FindGaps(activity);
  const auto longer = [](const gpu::Gap& a, const gpu::Gap& b) {
    return std::tuple(a.at.begin - a.at.end, a.at.begin, a.device) <
           std::tuple(b.at.begin - b.at.end, b.at.begin, b.device);
  };
  table.totals[std::string(kListedRows)] += static_cast<std::int64_t>(found.gaps.size());
  // Names are made for what can be shown only.
  const std::size_t wanted = options.top == 0 ? found.gaps.size() : std::min(options.top, found.gaps.size());
  std::partial_sort(found.gaps.begin(), found.gaps.begin() + static_cast<std::ptrdiff_t>(wanted), found.gaps.end(),
                    longer);
  found.gaps.resize(wanted);
  for (const gpu::Gap& gap : found.gaps) {
    std::vector<Cell> row(kBegin + 1);
    row[kRank] = Int(rank.rank);
    row[kDevice] = Int(gap.device);
    row[kAt] = Int(gap.at.begin - activity.windows.front().begin);
    row[kGap] = Int(gap.at.end - gap.at.begin);
    row[kCause] = Text(gpu::GapCauseName(gap.cause));
    if (const gpu::RankView::Step* step = StepAt(rank, gap.at.begin)) row[kStep] = Int(step->index);
    if (gap.host_range != schema::kNone) row[kHost] = Text(rank.Text(rank.tables.ranges.name[gap.host_range]));
    if (gap.blocking != schema::kNone)
      row[kCall] = gpu::BlockingName(rank, found.blocking[gap.blocking]);
    else if (gap.host_call != schema::kNone)
      row[kCall] = Text(rank.Text(rank.tables.api.name[gap.host_call]));
    if (gap.before != schema::kNone) row[kBefore] = gpu::OpName(rank, ops[gap.before]);
    if (gap.after != schema::kNone) row[kAfter] = gpu::OpName(rank, ops[gap.after]);
    row[kBegin] = Int(gap.at.begin);
    table.rows.push_back(std::move(row));
  }
}

void Finish(const merge::Timeline&, const TableOptions& options, Table& table) { KeepLargest(options, Longer, table); }

}  // namespace list
}  // namespace

const TableKind kIdleTable = {"idle", "when the GPU did nothing, by cause", cause::Head, cause::RankRows,
                              cause::Finish};
const TableKind kIdleGapsTable = {"idle-gaps", "the largest idle gaps: where, when, what the host did", list::Head,
                                  list::RankRows, list::Finish};

}  // namespace lockstep::tables
