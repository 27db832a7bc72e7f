#include "runtime/agent/window/window_control.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <vector>

#include "core/byte_text.h"
#include "core/own_file.h"
#include "runtime/agent/rings/segment_entries.h"

namespace lockstep::agent {
namespace {

// The longest wait for a step boundary: the application may be past its last step.
constexpr std::int64_t kBoundaryWaitNs = 10 * kSecondNs;
constexpr std::int64_t kPollNs = kSecondNs / 5;  // Interval at which files that request a window are looked for.
// Requests reach other ranks through the file system. Its caches (NFS: seconds) and the agents' ticks take time, and
// ranks may be a second apart.
constexpr std::int64_t kLeadNs = 2 * kSecondNs;
constexpr std::int64_t kRateSpanNs = 4 * kSecondNs;
constexpr std::size_t kMostRequestBytes = 256;

bool Exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

}  // namespace

WindowControl::WindowControl(const WindowPlan& plan, const SegmentView& segment, const EventClock& clock,
                             SpoolWriter& spool, Setup setup)
    : plan_(plan),
      segment_(segment),
      window_(segment.header().window),
      clock_(clock),
      spool_(spool),
      setup_(std::move(setup)) {}

std::uint64_t WindowControl::hard_limit_bytes() const { return setup_.max_bytes + setup_.max_bytes / 16; }

void WindowControl::Begin() {
  FillSpec(plan_, window_);
  begin_ns_ = RawNs();
  if (!setup_.included) {
    // Identities are counted and clocks are measured, but nothing switches recording on.
    window_.kind = WindowKind::kManual;
    window_.range_name[0] = 0;
    window_.stop_requested.store(static_cast<std::uint32_t>(WindowCause::kRunBegin) + 1);
    return;
  }
  if (plan_.trigger_file) Say("to record: touch " + setup_.run_dir + "/trigger");
  if (plan_.kind == WindowKind::kAll)
    SwitchNow(true, WindowCause::kRunBegin, false);
  else if (plan_.kind == WindowKind::kTimer && plan_.delay_ns == 0)
    SwitchNow(true, WindowCause::kTimer, false);
}

template <typename F>
void WindowControl::ForEachProcess(F&& f) const {
  const std::span<ProcessEntry> entries = UsedProcesses(segment_);
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (entries[i].state.load(std::memory_order_acquire) == SlotState::kActive) f(segment_.windows()[i]);
}

std::int64_t WindowControl::next_step() const {
  std::int64_t next = 0;
  bool live = false;
  ForEachProcess([&](const ProcessWindow& each) {
    live |= each.steps_live.load(std::memory_order_relaxed) != 0;
    next = std::max(next, each.next_step.load(std::memory_order_acquire));
  });
  return live ? next : segment_.slot_window().next_step.load(std::memory_order_acquire);
}

bool WindowControl::AllPast(std::int64_t step) const {
  bool all = segment_.slot_window().next_step.load() > step;
  ForEachProcess([&](const ProcessWindow& each) {
    all &= each.steps_live.load(std::memory_order_relaxed) == 0 || each.next_step.load() > step;
  });
  return all;
}

bool WindowControl::BoundaryMissing(bool on) const {
  bool missing = false;
  ForEachProcess([&](const ProcessWindow& each) {
    missing |= each.steps_live.load(std::memory_order_relaxed) != 0 &&
               ((each.state.load(std::memory_order_acquire) & kWindowOn) != 0) != on;
  });
  return missing;
}

// The agent's counterpart of RecordSwitch in runtime/probe/window.cc, for all processes and those to come.
void WindowControl::SwitchNow(bool on, WindowCause cause, bool cut) {
  std::vector<ProcessWindow*> turned;
  const auto turn = [&](ProcessWindow& window) {
    if (TurnState(window, on)) turned.push_back(&window);
  };
  turn(segment_.slot_window());
  ForEachProcess(turn);
  if (turned.empty()) return;
  const std::int64_t next = next_step();
  const bool live = StepsSeen() > 0;
  SpoolWindow row{};
  row.step = !live ? -1 : on ? next : std::max<std::int64_t>(next - 1, 0);
  row.on = on ? 1 : 0;
  row.cause = static_cast<std::uint8_t>(cause);
  row.cut = cut ? 1 : 0;
  // The time is taken while recording is off, so that every recorded event lies within the window.
  if (on) row.ticks = clock_.Ticks();
  for (ProcessWindow* window : turned) FollowState(*window);
  if (!on) row.ticks = clock_.Ticks();
  for (ProcessWindow* window : turned) {
    window->switches.Note(on, row.ticks);
    if (on) window->windows_begun.fetch_add(1, std::memory_order_relaxed);
  }
  spool_.Append({SpoolKind::kWindows}, &row, sizeof row, SpoolReserve::kHalf);
}

void WindowControl::FollowSteps(std::int64_t now_ns) {
  const std::uint32_t live = StepsSeen();
  if (live == seen_live_) return;
  seen_live_ = live;
  last_step_ns_ = now_ns;
  steps_.emplace_back(now_ns, next_step());
  while (steps_.size() > 2 && now_ns - steps_[1].first > kRateSpanNs) steps_.pop_front();
}

bool WindowControl::StepsLive(std::int64_t now_ns) const {
  return seen_live_ > 0 && now_ns - last_step_ns_ < kBoundaryWaitNs;
}

double WindowControl::StepsPerSecond() const {
  if (steps_.size() < 2 || steps_.back().second <= steps_.front().second) return 0;
  return static_cast<double>(steps_.back().second - steps_.front().second) * 1e9 /
         static_cast<double>(steps_.back().first - steps_.front().first);
}

void WindowControl::FollowTimer(std::int64_t now_ns) {
  const auto request = [&](std::atomic<std::uint32_t>& flag, bool on) {
    if (asked_ns_ == 0) asked_ns_ = now_ns;
    if (StepsLive(now_ns) && now_ns - asked_ns_ < kBoundaryWaitNs && BoundaryMissing(on)) {
      flag.store(static_cast<std::uint32_t>(WindowCause::kTimer) + 1);
      return;
    }
    SwitchNow(on, WindowCause::kTimer, false);
    if (!on) window_.stop_requested.store(static_cast<std::uint32_t>(WindowCause::kTimer) + 1);
  };
  if (timer_on_ns_ == 0) {
    if (now_ns < begin_ns_ + plan_.delay_ns) return;
    if (!SlotRecords()) request(window_.start_requested, true);
    if (!SlotRecords()) return;
    window_.start_requested.store(0);
    timer_on_ns_ = now_ns;
    asked_ns_ = 0;
  }
  if (timer_over_ || plan_.duration_ns == 0 || now_ns < timer_on_ns_ + plan_.duration_ns) return;
  if (SlotRecords()) request(window_.stop_requested, false);
  timer_over_ = !SlotRecords();
}

bool WindowControl::Busy(std::int64_t now_ns) const {
  if (off_at_ns_ != 0 && now_ns < off_at_ns_) return true;
  const std::int64_t begin = window_.armed_begin.load();
  return begin >= 0 && !AllPast(window_.armed_end.load());
}

bool WindowControl::Adopt(const std::string& text, std::int64_t now_ns) {
  std::int64_t begin = 0, end = 0, duration_ns = 0;
  if (std::sscanf(text.c_str(), "steps %" SCNd64 " %" SCNd64 "\n", &begin, &end) == 2 && begin >= 0 && end > begin) {
    window_.armed_begin.store(-1);
    window_.armed_end.store(end);
    window_.armed_begin.store(begin, std::memory_order_release);
    Say("recording steps " + std::to_string(begin) + " to " + std::to_string(end - 1) + " (now at step " +
        std::to_string(std::max<std::int64_t>(next_step() - 1, 0)) + ")");
    return true;
  }
  if (std::sscanf(text.c_str(), "time %" SCNd64 "\n", &duration_ns) == 1 && duration_ns > 0) {
    off_at_ns_ = now_ns + duration_ns;
    SwitchNow(true, WindowCause::kTrigger, false);
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%g", static_cast<double>(duration_ns) * 1e-9);
    Say("no steps are marked: recording for " + std::string(seconds) + " s");
    return true;
  }
  return false;
}

// Chooses the same steps for all ranks, or the same moment.
void WindowControl::AnswerRequest(std::int64_t now_ns) {
  std::string text;
  if (seen_live_ > 0) {
    const std::int64_t next = next_step();
    const double ahead = std::ceil(StepsPerSecond() * (static_cast<double>(kLeadNs) * 1e-9));
    const std::int64_t least = next + std::max<std::int64_t>(2, static_cast<std::int64_t>(ahead));
    const std::int64_t begin = (least + plan_.align_steps - 1) / plan_.align_steps * plan_.align_steps;
    text = "steps " + std::to_string(begin) + " " + std::to_string(begin + plan_.trigger_steps) + "\n";
  } else {
    text = "time " + std::to_string(plan_.duration_ns) + "\n";
  }
  const std::string path = setup_.run_dir + "/.window-" + std::to_string(request_ + 1);
  // The file appears whole, and only if no other agent was first.
  if (CreateFile(path, text, 0644) != 0)
    if (const std::string theirs = ReadPlain(path, kMostRequestBytes); !theirs.empty()) text = theirs;
  ++request_;
  Adopt(text, now_ns);
}

void WindowControl::FollowRequests(std::int64_t now_ns) {
  if (off_at_ns_ != 0 && now_ns >= off_at_ns_) {
    SwitchNow(false, WindowCause::kTrigger, false);
    off_at_ns_ = 0;
  }
  if (Busy(now_ns)) {
    requested_ = false;  // One window at a time.
    return;
  }
  if (now_ns < next_poll_ns_ && !requested_) return;
  next_poll_ns_ = now_ns + kPollNs;
  // A decision that another agent has published comes first.
  if (const std::string text =
          ReadPlain(setup_.run_dir + "/.window-" + std::to_string(request_ + 1), kMostRequestBytes);
      !text.empty()) {
    ++request_;
    requested_ = false;
    Adopt(text, now_ns);
    return;
  }
  const std::string trigger = setup_.run_dir + "/trigger";
  const bool touched = Exists(trigger);
  if (!requested_ && !touched) return;
  requested_ = false;
  AnswerRequest(now_ns);
  if (touched) ::unlink(trigger.c_str());
}

void WindowControl::FollowSize(std::int64_t now_ns, std::uint64_t bytes) {
  // The next tick may find as much again as this one, so recording stops while the limit still covers that.
  const std::uint64_t growth = bytes - std::min(bytes, last_bytes_);
  last_bytes_ = bytes;
  if (limit_since_ns_ == 0 && (!AnyRecording(segment_) || bytes + growth < setup_.max_bytes)) return;
  if (limit_since_ns_ == 0) {
    limit_since_ns_ = now_ns;
    window_.stop_requested.store(static_cast<std::uint32_t>(WindowCause::kSizeLimit) + 1);
    Say("recording stops at the size limit, --max-bytes " + std::to_string(setup_.max_bytes));
  }
  const bool wait = StepsLive(now_ns) && BoundaryMissing(false) && now_ns - limit_since_ns_ < kBoundaryWaitNs &&
                    bytes < setup_.max_bytes + setup_.max_bytes / 32;
  if (!wait) SwitchNow(false, WindowCause::kSizeLimit, true);
}

// Estimates once, after the first recorded steps, how much all of them will need.
void WindowControl::Project(std::uint64_t bytes) {
  constexpr std::int64_t kEnoughSteps = 5;
  const std::int64_t wanted = StepsWanted(window_);
  if (projected_ || wanted <= 0 || !AnyRecording(segment_)) return;
  const std::int64_t next = next_step();
  if (step_at_on_ < 0) {
    step_at_on_ = next;
    bytes_at_on_ = bytes;
  }
  const std::int64_t steps = next - step_at_on_;
  if (steps < std::min(kEnoughSteps, wanted / 2)) return;
  if (steps <= 0 || bytes <= bytes_at_on_) return;
  projected_ = true;
  const double needed =
      static_cast<double>(bytes - bytes_at_on_) / static_cast<double>(steps) * static_cast<double>(wanted);
  const std::string start = plan_.text + " will need about " + ByteText(needed) + " per rank, ";
  struct statvfs disk {};
  const double free = ::statvfs(spool_.path().c_str(), &disk) == 0
                          ? static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize)
                          : INFINITY;
  if (needed > static_cast<double>(setup_.max_bytes))
    Say(start + "--max-bytes allows " + ByteText(static_cast<double>(setup_.max_bytes)) +
        ": recording will stop there");
  else if (needed > free + static_cast<double>(bytes))
    Say(start + "and " + ByteText(free) + " are free: name another directory with --spool-dir");
}

void WindowControl::Tick(std::int64_t now_ns, std::uint64_t bytes) {
  FollowSteps(now_ns);
  if (!setup_.included) return;
  FollowSize(now_ns, bytes);
  Project(bytes);
  if (limit_reached()) return;
  if (plan_.kind == WindowKind::kTimer) FollowTimer(now_ns);
  if (plan_.kind == WindowKind::kTrigger) FollowRequests(now_ns);
}

std::int64_t WindowControl::due_ns(std::int64_t now_ns) const {
  constexpr std::int64_t kSoonNs = 5'000'000;
  std::int64_t due = INT64_MAX;
  if (!setup_.included || limit_reached()) return due;
  if (plan_.kind == WindowKind::kTimer && !timer_over_) {
    if (timer_on_ns_ == 0)
      due = begin_ns_ + plan_.delay_ns;
    else if (plan_.duration_ns > 0)
      due = timer_on_ns_ + plan_.duration_ns;
  }
  if (off_at_ns_ != 0) due = off_at_ns_;
  // The switch is due and waits for a step boundary.
  return due <= now_ns ? now_ns + kSoonNs : due;
}

bool WindowControl::ranges_missing() const {
  return setup_.included && plan_.kind == WindowKind::kRange && segment_.slot_window().ranges_begun.load() == 0;
}

bool WindowControl::steps_missing() const {
  const bool wanted =
      plan_.kind == WindowKind::kSteps || plan_.kind == WindowKind::kSchedule || !plan_.step_range.empty();
  return setup_.included && wanted && StepsSeen() == 0;
}

void WindowControl::Finish() {
  if (!setup_.included) return;
  const bool open_ended = plan_.kind == WindowKind::kAll || plan_.kind == WindowKind::kManual ||
                          (plan_.kind == WindowKind::kTimer && plan_.duration_ns == 0);
  const bool limited = limit_reached();
  SwitchNow(false, limited ? WindowCause::kSizeLimit : WindowCause::kRunEnd, limited || !open_ended);
}

}  // namespace lockstep::agent
