#include "analysis/gpu/device_gaps.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "analysis/gpu/stream_waits.h"

namespace lockstep::gpu {
namespace {

constexpr std::uint32_t kNone = schema::kNone;
// Beyond what clocks show: the window has no known end on that side.
constexpr std::int64_t kNoEnd = std::int64_t{1} << 61;

// Intervals of one kind of host activity, per thread.
class PerThread {
 public:
  void Add(std::uint32_t thread, Interval interval) { raw_[thread].push_back(interval); }
  void Close() {
    for (auto& [thread, intervals] : raw_) sets_.emplace(thread, Normalize(std::move(intervals)));
    raw_.clear();
  }
  std::int64_t Within(std::uint32_t thread, Interval interval) const {
    const auto at = sets_.find(thread);
    return at == sets_.end() ? 0 : TotalWithin(at->second, interval);
  }

 private:
  std::map<std::uint32_t, std::vector<Interval>> raw_;
  std::map<std::uint32_t, IntervalSet> sets_;
};

bool CpuBackend(std::string_view name) {
  return name.starts_with("gloo:") || name.starts_with("mpi:") || name.starts_with("ucc:");
}

// What the host did while a device waited for a launch.
class HostSide {
 public:
  HostSide(const DeviceActivity& activity, const std::vector<BlockingCall>& blocking)
      : rank_(activity.rank), t_(rank_.tables), nest_(t_), blocking_(blocking) {
    for (std::uint32_t row = 0; row < t_.threads.rows(); ++row)
      if (t_.threads.training[row] && training_ == kNone) training_ = t_.threads.thread[row];
    constexpr std::uint8_t kInputCategory = schema::Category::kInput, kCommCategory = schema::Category::kCommunication;
    for (std::uint32_t row = 0; row < t_.ranges.rows(); ++row) {
      const std::uint8_t category = t_.ranges.category[row];
      if (category != kInputCategory && category != kCommCategory) continue;
      const Interval at{t_.ranges.begin_ns[row], t_.ranges.begin_ns[row] + t_.ranges.duration_ns[row]};
      // "nccl:all_reduce" only enqueues: the host does not wait in it.
      if (category == kInputCategory)
        input_.Add(t_.ranges.thread[row], at);
      else if (CpuBackend(rank_.Text(t_.ranges.name[row])))
        communication_.Add(t_.ranges.thread[row], at);
    }
    for (std::uint32_t row = 0; row < t_.mpi_calls.rows(); ++row)
      communication_.Add(t_.mpi_calls.thread[row],
                         {t_.mpi_calls.begin_ns[row], t_.mpi_calls.begin_ns[row] + t_.mpi_calls.duration_ns[row]});
    input_.Close();
    communication_.Close();

    calls_.resize(t_.api.rows());
    for (std::uint32_t row = 0; row < calls_.size(); ++row) calls_[row] = row;
    std::sort(calls_.begin(), calls_.end(), [&](std::uint32_t a, std::uint32_t b) { return Key(a) < Key(b); });
    by_thread_.resize(blocking.size());
    for (std::uint32_t i = 0; i < by_thread_.size(); ++i) by_thread_[i] = i;
    std::sort(by_thread_.begin(), by_thread_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::tuple(blocking[a].thread, blocking[a].end_ns, a) <
             std::tuple(blocking[b].thread, blocking[b].end_ns, b);
    });
  }

  // `idle`: from when the device went idle until the launch.
  void Judge(Interval idle, std::uint32_t launch, Gap& gap) const {
    const std::uint32_t thread = t_.api.thread[launch];
    gap.cause = GapCause::kHost;
    gap.blocking = LastBlocking(thread, idle);
    if (gap.blocking == kNone && training_ != thread) gap.blocking = LastBlocking(training_, idle);
    if (gap.blocking == kNone && training_ != kNone) gap.blocking = LastBlocking(kNone, idle);
    const std::int64_t half = (idle.end - idle.begin + 1) / 2;
    const auto mostly = [&](const PerThread& activity) {
      return half > 0 && std::max(activity.Within(thread, idle), activity.Within(training_, idle)) >= half;
    };
    if (mostly(input_))
      gap.cause = GapCause::kInput;
    else if (mostly(communication_))
      gap.cause = GapCause::kCollective;
    else if (gap.blocking != kNone)
      gap.cause = GapCause::kSync;
    if (gap.cause != GapCause::kSync) gap.blocking = kNone;

    // A range that covers half of an interval is open in its middle.
    const std::int64_t middle = idle.begin + (idle.end - idle.begin) / 2;
    const auto overlap = [&](std::int64_t begin, std::int64_t duration) {
      return std::min(begin + duration, idle.end) - std::max(begin, idle.begin);
    };
    for (std::uint32_t range = nest_.At(thread, middle); range != kNone; range = nest_.Parent(range))
      if (overlap(t_.ranges.begin_ns[range], t_.ranges.duration_ns[range]) >= half) {
        gap.host_range = range;
        break;
      }
    const auto after = std::upper_bound(
        calls_.begin(), calls_.end(), std::pair(thread, middle),
        [&](const std::pair<std::uint32_t, std::int64_t>& key, std::uint32_t row) { return key < Key(row); });
    if (after != calls_.begin() && t_.api.thread[after[-1]] == thread && half > 0 &&
        overlap(t_.api.begin_ns[after[-1]], t_.api.duration_ns[after[-1]]) >= half)
      gap.host_call = after[-1];
    if (gap.cause != GapCause::kSync) return;
    // The sync itself says where it was called.
    const BlockingCall& call = blocking_[gap.blocking];
    gap.host_range = call.thread == kNone ? kNone : nest_.At(call.thread, call.begin_ns);
    gap.host_call = call.api;
  }

 private:
  std::pair<std::uint32_t, std::int64_t> Key(std::uint32_t row) const {
    return {t_.api.thread[row], t_.api.begin_ns[row]};
  }

  // The last call of the thread that was waiting when the device went idle and returned
  // before the launch.
  std::uint32_t LastBlocking(std::uint32_t thread, Interval idle) const {
    const auto after = std::upper_bound(by_thread_.begin(), by_thread_.end(), std::pair(thread, idle.end),
                                        [&](const std::pair<std::uint32_t, std::int64_t>& key, std::uint32_t i) {
                                          return key < std::pair(blocking_[i].thread, blocking_[i].end_ns);
                                        });
    for (auto at = after; at != by_thread_.begin();) {
      const BlockingCall& call = blocking_[*--at];
      if (call.thread != thread || call.end_ns < idle.begin - kClockSlackNs) break;
      if (call.begin_ns < idle.begin) return *at;
    }
    return kNone;
  }

  const RankView& rank_;
  const schema::RankTables& t_;
  RangeNest nest_;
  const std::vector<BlockingCall>& blocking_;
  std::vector<std::uint32_t> calls_, by_thread_;
  PerThread input_, communication_;
  std::uint32_t training_ = kNone;
};

class GapFinder {
 public:
  explicit GapFinder(const DeviceActivity& activity)
      : activity_(activity),
        t_(activity.rank.tables),
        ops_(activity.timeline.ops),
        waits_(activity.timeline.Devices().size() > 1 ? FindStreamWaits(t_, activity.timeline) : StreamWaits{}),
        found_{{}, FindBlockingCalls(t_, activity.launches), {}},
        host_(activity, found_.blocking) {}

  DeviceGaps Find() {
    for (const std::uint16_t device : activity_.timeline.Devices()) FindOn(device);
    return std::move(found_);
  }

 private:
  void FindOn(std::uint16_t device) {
    DeviceGaps::Device sum{device, Total(activity_.windows), 0};
    std::uint32_t last = kNone;  // Of the busy operations so far the one that ended last.
    window_ = 0;
    for (std::uint32_t i = 0; i < ops_.size(); ++i) {
      if (!ops_[i].busy || activity_.timeline.DeviceOf(ops_[i]) != device) continue;
      const std::int64_t since = last == kNone ? -kNoEnd : ops_[last].end_ns;
      if (ops_[i].begin_ns > since) Add({since, ops_[i].begin_ns}, device, last, i, sum);
      if (last == kNone || ops_[i].end_ns >= ops_[last].end_ns) last = i;
    }
    if (last != kNone) Add({ops_[last].end_ns, kNoEnd}, device, last, kNone, sum);
    found_.devices.push_back(sum);
  }

  // Gaps of a device come in order.
  void Add(Interval whole, std::uint16_t device, std::uint32_t before, std::uint32_t after, DeviceGaps::Device& sum) {
    const auto& windows = activity_.windows;
    while (window_ < windows.size() && windows[window_].end <= whole.begin) ++window_;
    std::optional<Gap> judged;
    for (std::size_t w = window_; w < windows.size() && windows[w].begin < whole.end; ++w) {
      const Interval at{std::max(whole.begin, windows[w].begin), std::min(whole.end, windows[w].end)};
      if (at.begin >= at.end) continue;
      if (!judged) judged = Judge(whole, device, before, after);
      judged->at = at;
      found_.gaps.push_back(*judged);
      sum.idle_ns += at.end - at.begin;
    }
  }

  // As the trace tells: by work that ended within the gap, so that the device was idle meanwhile.
  bool HeldByOtherDevice(std::uint32_t op, std::uint16_t device, Interval idle) const {
    if (op >= waits_.held_by.size() || waits_.held_by[op] == kNone) return false;
    const GpuOp& held_by = ops_[waits_.held_by[op]];
    return activity_.timeline.DeviceOf(held_by) != device && held_by.end_ns > idle.begin && held_by.end_ns <= idle.end;
  }

  Gap Judge(Interval whole, std::uint16_t device, std::uint32_t before, std::uint32_t after) const {
    Gap gap{whole, device, GapCause::kEnd, before, after, kNone, kNone, kNone};
    if (before == kNone || after == kNone) return gap;
    const std::uint32_t launch = ops_[after].api;
    if (launch == kNone) {
      gap.cause = GapCause::kUnknown;
    } else if (t_.api.begin_ns[launch] < whole.begin) {
      gap.cause = HeldByOtherDevice(after, device, whole) ? GapCause::kStreamWait : GapCause::kLatency;
    } else {
      host_.Judge({whole.begin, std::min(whole.end, t_.api.begin_ns[launch])}, launch, gap);
    }
    return gap;
  }

  const DeviceActivity& activity_;
  const schema::RankTables& t_;
  const std::vector<GpuOp>& ops_;
  const StreamWaits waits_;  // Of ranks with several devices.
  DeviceGaps found_;
  HostSide host_;
  std::size_t window_ = 0;
};

}  // namespace

std::string_view GapCauseName(GapCause cause) {
  switch (cause) {
    case GapCause::kHost:
      return "host";
    case GapCause::kInput:
      return "input";
    case GapCause::kSync:
      return "sync";
    case GapCause::kCollective:
      return "collective";
    case GapCause::kStreamWait:
      return "stream_wait";
    case GapCause::kLatency:
      return "launch_latency";
    case GapCause::kUnknown:
      return "launch_unknown";
    case GapCause::kEnd:
      return "edge_of_trace";
  }
  return "";
}

std::string BlockingName(const RankView& rank, const BlockingCall& call) {
  if (call.api != kNone) return std::string(rank.Text(rank.tables.api.name[call.api]));
  if (call.sync == kNone) return "sync";
  switch (rank.tables.sync.kind[call.sync]) {
    case 1:
      return "event sync";
    case 3:
      return "stream sync";
    case 4:
      return "context sync";
    default:
      return "sync";
  }
}

DeviceActivity::DeviceActivity(const RankView& view)
    : rank(view), launches(FindLaunches(view.tables)), timeline(MakeGpuTimeline(view, launches)) {
  Interval extent{0, 0};
  if (!timeline.ops.empty()) extent = {timeline.ops.front().begin_ns, timeline.ops.front().end_ns};
  for (const GpuOp& op : timeline.ops) extent.end = std::max(extent.end, op.end_ns);
  for (Interval window : view.windows) {
    if (window.begin < -kNoEnd) window.begin = extent.begin;
    if (window.end > kNoEnd) window.end = extent.end;
    if (window.begin < window.end) windows.push_back(window);
  }
}

DeviceGaps FindGaps(const DeviceActivity& activity) { return GapFinder(activity).Find(); }

std::string OpName(const RankView& rank, const GpuOp& op) {
  if (!op.copy) return std::string(rank.Text(rank.tables.kernels.name[op.row]));
  return std::string(CopyKindName(rank.tables.copies.kind[op.row]));
}

std::string_view CopyKindName(std::uint8_t kind) {
  constexpr std::string_view kNames[] = {"copy",           "copy host to device", "copy device to host",
                                         "copy on device", "copy peer",           "copy host to host",
                                         "memset"};
  return kNames[kind < std::size(kNames) ? kind : 0];
}

}  // namespace lockstep::gpu
