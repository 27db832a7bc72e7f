// Which steps the GPU works through and which it spends waiting for launches.

#include <algorithm>
#include <array>

#include "analysis/gpu/device_gaps.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"

namespace lockstep::tables {
namespace {

constexpr std::int64_t kShortNs = 10'000;
// A device that is busy for this part of the step is what limits it.
constexpr double kBusyEnough = 0.8;

enum Column : std::size_t {
  kRank,
  kStep,
  kDevice,
  kBound,
  kWindow,
  kBusy,
  kIdle,
  kLaunchLimited,
  kOfIdle,
  kInput,
  kSync,
  kCollective,
  kCompute,
  kLaunches,
  kLaunchCpu,
  kOps,
  kShort,
  kShortShare,
};

Table Head() {
  return {
      "launch-bound",
      "What limits each step: the GPU's work or its launches",
      {{"rank", ColumnKind::kId, "rank; all: the ranks together"},
       {"step", ColumnKind::kId, "step; none: the window", Pool::kKey},
       {"device", ColumnKind::kId, "device, on ranks that use several", Pool::kKey},
       {"bound", ColumnKind::kText,
        "compute or communication: the device is busy for 80 % of the step, mostly with that; else the largest part "
        "of its idle time: launch, input, sync, collective, unknown"},
       {"window_ns", ColumnKind::kNs, "the step on the GPU", Pool::kSum},
       {"busy_ns", ColumnKind::kNs, "any stream busy", Pool::kSum},
       {"idle_ns", ColumnKind::kNs, "no stream busy", Pool::kSum},
       {"launch_limited_ns", ColumnKind::kNs, "part of idle by launches that came late or started late", Pool::kSum},
       {"launch_limited_share", ColumnKind::kFraction, "of idle"},
       {"input_ns", ColumnKind::kNs, "part of idle by data loading", Pool::kSum, true},
       {"sync_ns", ColumnKind::kNs, "part of idle after syncs", Pool::kSum, true},
       {"collective_ns", ColumnKind::kNs, "part of idle by the host's communication", Pool::kSum, true},
       {"compute_ns", ColumnKind::kNs, "compute kernels running", Pool::kSum, true},
       {"launches", ColumnKind::kCount, "calls that launched what began in the step", Pool::kSum},
       {"launch_cpu_ns", ColumnKind::kNs, "the host's time in them", Pool::kSum},
       {"kernels", ColumnKind::kCount, "kernels that began in the step", Pool::kSum, true},
       {"short_kernels", ColumnKind::kCount, "of them below 10 us", Pool::kSum, true},
       {"short_share", ColumnKind::kFraction, "of the kernels"}},
      {},
      {}};
}

void Judge(std::vector<Cell>& row) {
  row[kOfIdle] = Share(IntOf(row[kLaunchLimited]), IntOf(row[kIdle]));
  row[kShortShare] = Share(IntOf(row[kShort]), IntOf(row[kOps]));
  const auto window = static_cast<double>(IntOf(row[kWindow])), busy = static_cast<double>(IntOf(row[kBusy]));
  if (window <= 0) return;
  if (busy >= kBusyEnough * window) {
    row[kBound] = Text(2 * IntOf(row[kCompute]) >= IntOf(row[kBusy]) ? "compute" : "communication");
    return;
  }
  const std::int64_t known =
      IntOf(row[kLaunchLimited]) + IntOf(row[kInput]) + IntOf(row[kSync]) + IntOf(row[kCollective]);
  const std::array<std::pair<std::int64_t, std::string_view>, 5> parts = {{{IntOf(row[kLaunchLimited]), "launch"},
                                                                           {IntOf(row[kInput]), "input"},
                                                                           {IntOf(row[kSync]), "sync"},
                                                                           {IntOf(row[kCollective]), "collective"},
                                                                           {IntOf(row[kIdle]) - known, "unknown"}}};
  row[kBound] = Text(std::max_element(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
                       return a.first < b.first;
                     })->second);
}

struct Sums {
  std::int64_t window = 0, idle = 0, limited = 0, input = 0, sync = 0, collective = 0, compute = 0;
  std::int64_t launches = 0, launch_cpu = 0, kernels = 0, short_kernels = 0;
};

class PerStep {
 public:
  PerStep(const gpu::RankView& rank, const gpu::DeviceActivity& activity) : rank_(rank), activity_(activity) {
    for (const gpu::RankView::Step& step : rank.steps) windows_.push_back(step.window);
    if (rank.steps.empty()) windows_ = activity.windows;
  }

  void Rows(const gpu::DeviceGaps& found, const gpu::DeviceGaps::Device& device, Table& table) {
    sums_.assign(windows_.size(), {});
    for (std::size_t i = 0; i < windows_.size(); ++i) sums_[i].window = windows_[i].end - windows_[i].begin;
    for (const gpu::Gap& gap : found.gaps)
      if (gap.device == device.device) AddGap(gap);
    AddOps(device.device);
    if (rank_.steps.empty()) {
      Sums all;
      for (const Sums& s : sums_) {
        all.window += s.window, all.idle += s.idle, all.limited += s.limited, all.input += s.input;
        all.sync += s.sync, all.collective += s.collective, all.compute += s.compute, all.launches += s.launches;
        all.launch_cpu += s.launch_cpu, all.kernels += s.kernels, all.short_kernels += s.short_kernels;
      }
      Row(all, {}, device, found.devices.size() > 1, table);
      return;
    }
    for (std::size_t i = 0; i < sums_.size(); ++i)
      Row(sums_[i], Int(rank_.steps[i].index), device, found.devices.size() > 1, table);
  }

 private:
  // Windows in order, disjoint.
  std::size_t At(std::int64_t time_ns) const {
    const auto after = std::upper_bound(windows_.begin(), windows_.end(), time_ns,
                                        [](std::int64_t t, const Interval& window) { return t < window.begin; });
    if (after == windows_.begin()) return windows_.size();
    const auto at = static_cast<std::size_t>(after - windows_.begin()) - 1;
    // The last event of the whole may have no duration and begin at its very end.
    const bool last_instant =
        rank_.whole && rank_.steps.empty() && at + 1 == windows_.size() && time_ns == windows_[at].end;
    return time_ns < windows_[at].end || last_instant ? at : windows_.size();
  }

  void AddGap(const gpu::Gap& gap) {
    auto w = std::upper_bound(windows_.begin(), windows_.end(), gap.at.begin,
                              [](std::int64_t t, const Interval& window) { return t < window.end; });
    for (; w != windows_.end() && w->begin < gap.at.end; ++w) {
      const std::int64_t ns = std::min(gap.at.end, w->end) - std::max(gap.at.begin, w->begin);
      if (ns <= 0) continue;
      Sums& sum = sums_[static_cast<std::size_t>(w - windows_.begin())];
      sum.idle += ns;
      if (gpu::LaunchLimited(gap.cause)) sum.limited += ns;
      if (gap.cause == gpu::GapCause::kInput) sum.input += ns;
      if (gap.cause == gpu::GapCause::kSync) sum.sync += ns;
      if (gap.cause == gpu::GapCause::kCollective) sum.collective += ns;
    }
  }

  void AddOps(std::uint16_t device) {
    const auto& api = rank_.tables.api;
    std::vector<Interval> compute;
    std::vector<bool> seen(api.rows(), false);
    for (const gpu::GpuOp& op : activity_.timeline.ops) {
      if (!op.busy || activity_.timeline.DeviceOf(op) != device) continue;
      if (op.cls == merge::KernelClass::kCompute) compute.push_back({op.begin_ns, op.end_ns});
      const std::size_t w = At(op.begin_ns);
      if (w == windows_.size()) continue;
      if (!op.copy) {
        ++sums_[w].kernels;
        sums_[w].short_kernels += op.end_ns - op.begin_ns < kShortNs;
      }
      if (op.api == schema::kNone || seen[op.api]) continue;
      seen[op.api] = true;
      ++sums_[w].launches;
      sums_[w].launch_cpu += api.duration_ns[op.api];
    }
    const IntervalSet busy = Normalize(std::move(compute));
    for (std::size_t i = 0; i < windows_.size(); ++i) sums_[i].compute = TotalWithin(busy, windows_[i]);
  }

  void Row(const Sums& sum, Cell step, const gpu::DeviceGaps::Device& device, bool several, Table& table) const {
    std::vector<Cell> row(kShortShare + 1);
    row[kRank] = Int(rank_.rank);
    row[kStep] = std::move(step);
    row[kDevice] = IntOrUnknown(device.device, several);
    row[kWindow] = Int(sum.window);
    row[kBusy] = Int(sum.window - sum.idle);
    row[kIdle] = Int(sum.idle);
    row[kLaunchLimited] = Int(sum.limited);
    row[kInput] = Int(sum.input);
    row[kSync] = Int(sum.sync);
    row[kCollective] = Int(sum.collective);
    row[kCompute] = Int(sum.compute);
    row[kLaunches] = Int(sum.launches);
    row[kLaunchCpu] = Int(sum.launch_cpu);
    row[kOps] = Int(sum.kernels);
    row[kShort] = Int(sum.short_kernels);
    Judge(row);
    table.rows.push_back(std::move(row));
  }

  const gpu::RankView& rank_;
  const gpu::DeviceActivity& activity_;
  std::vector<Interval> windows_;
  std::vector<Sums> sums_;
};

void RankRows(const gpu::RankView& rank, const TableOptions&, Table& table) {
  const gpu::DeviceActivity activity(rank);
  if (activity.timeline.ops.empty()) {
    table.notes.emplace_back(gpu::NoGpuEvents());
    return;
  }
  const gpu::DeviceGaps found = gpu::FindGaps(activity);
  PerStep per_step(rank, activity);
  for (const gpu::DeviceGaps::Device& device : found.devices) per_step.Rows(found, device, table);
}

void Finish(const merge::Timeline&, const TableOptions&, Table& table) {
  auto end = table.rows.begin();
  for (; end != table.rows.end() && IsPooled(*end); ++end) Judge(*end);
  std::stable_sort(table.rows.begin(), end, [](const std::vector<Cell>& a, const std::vector<Cell>& b) {
    return std::pair(IntOf(a[kStep], -1), IntOf(a[kDevice], -1)) <
           std::pair(IntOf(b[kStep], -1), IntOf(b[kDevice], -1));
  });
}

}  // namespace

const TableKind kLaunchBoundTable = {"launch-bound", "which steps wait for launches, which for the GPU", Head, RankRows,
                                     Finish};

}  // namespace lockstep::tables
