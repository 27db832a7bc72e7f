#include "analysis/gpu/device_gaps.h"

#include <algorithm>
#include <array>
#include <utility>

#include "analysis/gpu/gap_parts.h"

namespace lockstep::gpu {
namespace {

using schema::kNone;
// Beyond what clocks show: the window has no known end on that side.
constexpr std::int64_t kNoEnd = std::int64_t{1} << 61;

class GapFinder {
 public:
  explicit GapFinder(const DeviceActivity& activity)
      : activity_(activity),
        ops_(activity.timeline.ops),
        found_{{}, {}, FindBlockingCalls(activity.rank.tables, activity.launches), {}},
        splitter_(activity, found_.blocking) {}

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
    for (std::size_t w = window_; w < windows.size() && windows[w].begin < whole.end; ++w) {
      const Interval at{std::max(whole.begin, windows[w].begin), std::min(whole.end, windows[w].end)};
      if (at.begin >= at.end) continue;
      Gap gap{at, device, before, after, splitter_.Follows(whole, before, after), found_.parts.size(), 0};
      splitter_.Split(gap, whole, found_.parts);
      gap.part_count = found_.parts.size() - gap.first_part;
      found_.gaps.push_back(gap);
      sum.idle_ns += at.end - at.begin;
    }
  }

  const DeviceActivity& activity_;
  const std::vector<GpuOp>& ops_;
  DeviceGaps found_;
  GapSplitter splitter_;
  std::size_t window_ = 0;
};

}  // namespace

std::string_view PartKindName(PartKind kind) {
  static constexpr std::array<std::string_view, kPartKinds> kNames = {
      "input",         "before_forward", "sync",        "memory",         "copy",         "load",
      "communication", "launch",         "call",        "operator",       "between",      "host_unknown",
      "stream_wait",   "start",          "not_started", "launch_unknown", "edge_of_trace"};
  return kNames[static_cast<std::size_t>(kind)];
}

bool LaunchLimited(PartKind kind) {
  switch (kind) {
    case PartKind::kBeforeForward:
    case PartKind::kMemory:
    case PartKind::kCopy:
    case PartKind::kLoad:
    case PartKind::kLaunch:
    case PartKind::kCall:
    case PartKind::kOperator:
    case PartKind::kBetween:
    case PartKind::kHostUnknown:
    case PartKind::kStart:
      return true;
    default:
      return false;
  }
}

bool Unexplained(PartKind kind) {
  return kind == PartKind::kHostUnknown || kind == PartKind::kNotStarted || kind == PartKind::kLaunchUnknown ||
         kind == PartKind::kEdge;
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

std::array<std::int64_t, kPartKinds> NsByKind(const DeviceGaps& found, const Gap& gap) {
  std::array<std::int64_t, kPartKinds> ns{};
  for (const GapPart& part : found.PartsOf(gap)) ns[static_cast<std::size_t>(part.kind)] += part.at.end - part.at.begin;
  return ns;
}

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
