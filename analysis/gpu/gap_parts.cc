#include "analysis/gpu/gap_parts.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "core/rules/common.h"

namespace lockstep::gpu {
namespace {

using schema::kNone;
using schema::kNoTime;
constexpr std::int64_t kEndOfTime = std::numeric_limits<std::int64_t>::max();

// Adds `part`, if it is not empty, to the one before where both say the same.
void Append(GapPart part, std::size_t first, std::vector<GapPart>& parts) {
  if (part.at.begin >= part.at.end) return;
  const auto what = [](const GapPart& p) { return std::tuple(p.kind, p.range, p.call, p.blocking); };
  if (parts.size() > first && parts.back().at.end == part.at.begin && what(parts.back()) == what(part))
    parts.back().at.end = part.at.end;
  else
    parts.push_back(part);
}

Interval Within(Interval a, Interval b) {
  a = {std::max(a.begin, b.begin), std::min(a.end, b.end)};
  a.end = std::max(a.begin, a.end);
  return a;
}

// What the host may do between two steps because of the next one's input: anything but waiting for the GPU or the
// driver.
bool MayPrepareInput(PartKind kind) {
  return kind == PartKind::kOperator || kind == PartKind::kBetween || kind == PartKind::kHostUnknown ||
         kind == PartKind::kCall;
}

}  // namespace

GapSplitter::GapSplitter(const DeviceActivity& activity, const std::vector<BlockingCall>& blocking)
    : activity_(activity),
      rank_(activity.rank),
      t_(rank_.tables),
      ops_(activity.timeline.ops),
      blocking_(blocking),
      host_(rank_, activity.launches, blocking),
      waits_(activity.timeline.Devices().size() > 1 ? FindStreamWaits(t_, activity.timeline) : StreamWaits{}),
      nest_(t_),
      model_(rank_, activity.timeline, nest_, activity.windows) {
  for (std::uint32_t row = 0; row < t_.threads.rows(); ++row)
    if (t_.threads.training[row] && training_ == kNone) training_ = t_.threads.thread[row];
  of_call_.assign(t_.api.rows(), kNone);
  by_thread_.resize(blocking.size());
  std::int64_t covered = kNoTime;
  for (std::uint32_t i = 0; i < blocking.size(); ++i) {
    by_thread_[i] = i;
    if (blocking[i].api != kNone) of_call_[blocking[i].api] = i;
    if (blocking[i].thread != kNone) continue;
    // Where several are open, the one that began first.
    const Interval at{std::max(blocking[i].begin_ns, covered), blocking[i].end_ns};
    if (at.begin < at.end) threadless_.push_back({at, i});
    covered = std::max(covered, at.end);
  }
  std::sort(by_thread_.begin(), by_thread_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::tuple(blocking[a].thread, blocking[a].end_ns, a) <
           std::tuple(blocking[b].thread, blocking[b].end_ns, b);
  });
  FindForwards();
}

void GapSplitter::FindForwards() {
  const schema::Ranges& ranges = t_.ranges;
  std::vector<std::int64_t> anchors, forwards;
  std::vector<Interval> optimizer_ranges;
  for (std::uint32_t row = 0; row < ranges.rows(); ++row) {
    if (ranges.kind[row] == schema::RangeKind::kMark) continue;
    // Where input is marked, that is what is input.
    if (ranges.category[row] == schema::Category::kInput) return;
    if (ranges.thread[row] != training_) continue;
    if (ranges.category[row] == schema::Category::kForward) forwards.push_back(ranges.begin_ns[row]);
    if (ranges.category[row] != schema::Category::kOptimizer) continue;
    const std::int64_t end = ranges.begin_ns[row] + ranges.duration_ns[row];
    optimizer_ranges.push_back({ranges.begin_ns[row], end});
    // Gradients may be cleared on either side of what loads input.
    if (rank_.Text(ranges.name[row]).find("zero_grad") == std::string_view::npos) anchors.push_back(end);
  }
  for (std::uint32_t row = 0; row < t_.steps.rows(); ++row) anchors.push_back(t_.steps.begin_ns[row]);
  if (anchors.empty()) return;
  // Without such ranges the forward pass begins with the first operator that launches compute.
  if (forwards.empty())
    for (const GpuOp& op : ops_) {
      if (op.copy || op.cls != merge::KernelClass::kCompute || op.api == kNone) continue;
      std::int64_t begin = t_.api.begin_ns[op.api];
      bool optimizer = false;
      for (std::uint32_t range = nest_.At(t_.api.thread[op.api], begin); range != kNone; range = nest_.Parent(range)) {
        optimizer |= ranges.category[range] == schema::Category::kOptimizer;
        if (ranges.source[range] == schema::RangeSource::kCpuOp) begin = ranges.begin_ns[range];
      }
      if (!optimizer) forwards.push_back(begin);
    }
  std::sort(anchors.begin(), anchors.end());
  std::sort(forwards.begin(), forwards.end());
  std::vector<Interval> before;
  for (std::size_t i = 0; i < anchors.size(); ++i) {
    const auto forward = std::lower_bound(forwards.begin(), forwards.end(), anchors[i]);
    if (forward != forwards.end() && (i + 1 == anchors.size() || *forward < anchors[i + 1]))
      before.push_back({anchors[i], *forward});
  }
  before_forward_ = Subtract(Normalize(std::move(before)), Normalize(std::move(optimizer_ranges)));
}

GapSplitter::Launch GapSplitter::LaunchOf(std::uint32_t before, std::uint32_t after) const {
  if (after != kNone) {
    const std::uint32_t row = ops_[after].api;
    if (row == kNone) return {{kEndOfTime, kEndOfTime}, kNone};
    return {{t_.api.begin_ns[row], t_.api.begin_ns[row] + t_.api.duration_ns[row]}, t_.api.thread[row]};
  }
  // Nothing was launched any more: by the thread that launched last.
  const std::uint32_t row = before != kNone ? ops_[before].api : kNone;
  return {{kEndOfTime, kEndOfTime}, row != kNone ? t_.api.thread[row] : training_};
}

// The last call of the thread that was waiting when the device went idle and returned before the launch. Where clocks
// disagree it has returned before that; it waited then for what ended last, which had been launched before it.
std::uint32_t GapSplitter::LastBlocking(std::uint32_t thread, Interval idle, std::int64_t launched_ns) const {
  const auto after = std::upper_bound(by_thread_.begin(), by_thread_.end(), std::pair(thread, idle.end),
                                      [&](const std::pair<std::uint32_t, std::int64_t>& key, std::uint32_t i) {
                                        return key < std::pair(blocking_[i].thread, blocking_[i].end_ns);
                                      });
  for (auto at = after; at != by_thread_.begin();) {
    const BlockingCall& call = blocking_[*--at];
    if (call.thread != thread || call.end_ns < idle.begin - slack_ns_) break;
    if (call.begin_ns < idle.begin && (call.end_ns >= idle.begin || launched_ns <= call.begin_ns)) return *at;
  }
  return kNone;
}

std::uint32_t GapSplitter::Follows(Interval whole, std::uint32_t before, std::uint32_t after) const {
  if (before == kNone || (after != kNone && ops_[after].api == kNone)) return kNone;
  const Launch launch = LaunchOf(before, after);
  if (launch.call.begin < whole.begin) return kNone;
  const Interval idle{whole.begin, std::min(whole.end, launch.call.begin)};
  const std::int64_t launched = ops_[before].api != kNone ? t_.api.begin_ns[ops_[before].api] : kNoTime;
  std::uint32_t found = LastBlocking(launch.thread, idle, launched);
  if (found == kNone && training_ != launch.thread) found = LastBlocking(training_, idle, launched);
  if (found == kNone && training_ != kNone) found = LastBlocking(kNone, idle, launched);
  return found;
}

PartKind GapSplitter::KindOfBlocking(std::uint32_t blocking) const {
  const std::uint32_t call = blocking_[blocking].api;
  if (call == kNone) return PartKind::kSync;
  const HostState state = host_.StateIn(call);
  return state == HostState::kMemory ? PartKind::kMemory
         : state == HostState::kCopy ? PartKind::kCopy
                                     : PartKind::kSync;
}

std::int64_t GapSplitter::HeldUntil(std::uint32_t after, std::uint16_t device, Interval whole) const {
  if (after >= waits_.held_by.size() || waits_.held_by[after] == kNone) return kNoTime;
  const GpuOp& held_by = ops_[waits_.held_by[after]];
  const bool elsewhere = activity_.timeline.DeviceOf(held_by) != device;
  return elsewhere && held_by.end_ns > whole.begin && held_by.end_ns <= whole.end ? held_by.end_ns : kNoTime;
}

void GapSplitter::Split(const Gap& gap, Interval whole, std::vector<GapPart>& parts) const {
  const std::size_t first = parts.size();
  const auto add = [&](Interval at, PartKind kind, std::uint32_t blocking = kNone) {
    Append({Within(at, gap.at), kind, kNone, kNone, blocking}, first, parts);
  };
  if (gap.after != kNone && ops_[gap.after].api == kNone) return add(gap.at, PartKind::kLaunchUnknown);
  const Launch launch = LaunchOf(gap.before, gap.after);
  if (launch.thread == kNone) return add(gap.at, PartKind::kEdge);
  const std::int64_t launched = std::clamp(launch.call.end, gap.at.begin, gap.at.end);
  SplitHost({gap.at.begin, launched}, launch, gap.follows, parts);
  if (launched == gap.at.end) return;
  std::int64_t ready = std::max(launch.call.end, whole.begin);
  if (const std::int64_t held = HeldUntil(gap.after, gap.device, whole); held > ready) {
    add({ready, held}, PartKind::kStreamWait);
    ready = held;
  }
  const std::int64_t prompt = ready + rules::kPromptStartNs;
  const bool delayed = gap.follows != kNone;
  add({ready, prompt}, delayed ? KindOfBlocking(gap.follows) : PartKind::kStart, gap.follows);
  add({prompt, gap.at.end}, PartKind::kNotStarted);
}

// The launching thread; where that is in nothing, the training thread; where that is not either, a wait of which it is
// not known whose it is.
void GapSplitter::SplitHost(Interval at, const Launch& launch, std::uint32_t follows,
                            std::vector<GapPart>& parts) const {
  const std::size_t first = parts.size();
  const auto nobody = [&](Interval hole) {
    if (hole.begin >= hole.end) return;
    const PartKind kind = host_.knows_operators() ? PartKind::kBetween : PartKind::kHostUnknown;
    AddHostPart({hole, kind, kNone, kNone, kNone}, false, launch, follows, first, parts);
  };
  const auto threadless = [&](Interval hole) {
    auto wait = std::upper_bound(threadless_.begin(), threadless_.end(), hole.begin,
                                 [](std::int64_t t, const auto& each) { return t < each.first.end; });
    for (; wait != threadless_.end() && wait->first.begin < hole.end; ++wait) {
      const Interval part = Within(wait->first, hole);
      nobody({hole.begin, part.begin});
      AddHostPart({part, PartKind::kSync, kNone, kNone, wait->second}, false, launch, follows, first, parts);
      hole.begin = part.end;
    }
    nobody(hole);
  };
  const auto training = [&](Interval hole) {
    if (training_ != kNone && training_ != launch.thread)
      host_.ForEach(training_, hole, [&](const HostMoment& moment) {
        threadless({hole.begin, moment.at.begin});
        AddHostPart(HostPart(moment), false, launch, follows, first, parts);
        hole.begin = moment.at.end;
      });
    threadless(hole);
  };
  host_.ForEach(launch.thread, at, [&](const HostMoment& moment) {
    training({at.begin, moment.at.begin});
    AddHostPart(HostPart(moment), true, launch, follows, first, parts);
    at.begin = moment.at.end;
  });
  training(at);
}

GapPart GapSplitter::HostPart(const HostMoment& moment) const {
  GapPart part{moment.at, PartKind::kBetween, moment.range, moment.call, kNone};
  switch (moment.state) {
    case HostState::kInput:
      part.kind = PartKind::kInput;
      break;
    case HostState::kSync:
    case HostState::kMemory:
    case HostState::kCopy:
      part.kind = moment.state == HostState::kSync     ? PartKind::kSync
                  : moment.state == HostState::kMemory ? PartKind::kMemory
                                                       : PartKind::kCopy;
      part.blocking = of_call_[moment.call];
      break;
    case HostState::kLoad:
      part.kind = PartKind::kLoad;
      break;
    case HostState::kLaunch:
      part.kind = PartKind::kLaunch;
      break;
    case HostState::kCall:
      part.kind = PartKind::kCall;
      break;
    case HostState::kCommunication:
      part.kind = PartKind::kCommunication;
      break;
    case HostState::kOperator:
      part.kind = PartKind::kOperator;
      break;
    case HostState::kRange:
      // The step as such says nothing; a phase says at least which.
      if (!host_.knows_operators() && model_.Encloses(moment.range) &&
          t_.ranges.category[moment.range] == schema::Category::kNone)
        part.kind = PartKind::kHostUnknown;
      break;
    case HostState::kFunction:
    case HostState::kNone:
      break;
  }
  return part;
}

void GapSplitter::AddHostPart(GapPart part, bool launching_thread, const Launch& launch, std::uint32_t follows,
                              std::size_t first, std::vector<GapPart>& parts) const {
  if (MayPrepareInput(part.kind)) {
    auto before = std::upper_bound(before_forward_.begin(), before_forward_.end(), part.at.begin,
                                   [](std::int64_t t, const Interval& each) { return t < each.end; });
    for (; before != before_forward_.end() && before->begin < part.at.end; ++before) {
      GapPart own = part, input = part;
      input.at = Within(*before, part.at);
      input.kind = PartKind::kBeforeForward;
      own.at.end = input.at.begin;
      Append(own, first, parts);
      Append(input, first, parts);
      part.at.begin = input.at.end;
    }
  } else if (part.kind == PartKind::kLaunch && launching_thread && follows != kNone) {
    // The launch that the wait delayed is in time for the GPU without it.
    GapPart own = part, delayed = part, rest = part;
    delayed.at = Within(launch.call, part.at);
    delayed.kind = KindOfBlocking(follows);
    delayed.blocking = follows;
    if (delayed.at.begin < delayed.at.end) {
      own.at.end = delayed.at.begin;
      rest.at.begin = delayed.at.end;
      Append(own, first, parts);
      Append(delayed, first, parts);
      Append(rest, first, parts);
      return;
    }
  }
  Append(part, first, parts);
}

}  // namespace lockstep::gpu
