// Step boundaries: counted always, recorded while recording is on, and the places
// where windows by step number begin and end (core/window.h).

#include <time.h>

#include <algorithm>

#include "runtime/probe/blocked/watch.h"
#include "runtime/probe/hooks.h"
#include "runtime/probe/ring.h"
#include "runtime/probe/window.h"

#define LOCKSTEP_BUILDING_PROBE
#include "runtime/lockstep.h"

// GCC calls through the symbol's alias: one function, two names.
#define LS_ALIAS(name) __attribute__((alias(#name), visibility("default")))

namespace lockstep::probe {
namespace {

constexpr std::uint32_t kSources = 3;
constexpr std::uint8_t kEnds = 0x80;  // StepRecord: no new step begins.

std::atomic<std::int64_t> g_next_step[kSources];
std::atomic<std::uint32_t> g_source{kSources};      // The best source seen so far.
std::atomic<std::int64_t> g_first_step{-1};         // The first step of that source.
std::atomic<const RingPage*> g_last_page{nullptr};  // The thread of the last boundary that decided.
std::atomic<std::int32_t> g_opening_ranges{0};      // --step-range: ranges that have begun and are not counted yet.
std::atomic<std::int32_t> g_step_ranges{0};         // The number of open ranges.
std::atomic<std::int32_t> g_recorded_ranges{0};     // Of those, the ranges whose step is to be recorded.

// -1: not read.
std::int64_t CpuNs(clockid_t clock) {
  timespec now{};
  if (clock_gettime(clock, &now) != 0) return -1;
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

std::uint32_t OthersCpuUs(std::int64_t thread_ns) {
  const std::int64_t all_ns = CpuNs(CLOCK_PROCESS_CPUTIME_ID);
  if (thread_ns < 0 || all_ns < 0) return 0;
  const auto us = static_cast<std::uint32_t>(std::max<std::int64_t>(0, all_ns - thread_ns) / 1000);
  return us != 0 ? us : 1;
}

void Write(StepSource source, std::int64_t index, std::uint8_t flags, std::uint64_t ticks) {
  const auto all = static_cast<std::uint8_t>(flags | static_cast<std::uint8_t>(source));
  const std::int64_t cpu_ns = CpuNs(CLOCK_THREAD_CPUTIME_ID);
  const StepRecord record{{RecordKind::kStep, all, 1}, OthersCpuUs(cpu_ns), index, ticks, cpu_ns};
  SlowWriter(1).Append(&record, 1, 1);
}

// Returns false if a better source marks the steps of this process.
bool IsBestSource(StepSource source) {
  const auto mine = static_cast<std::uint32_t>(source);
  std::uint32_t best = g_source.load(std::memory_order_acquire);
  if (mine == best) return true;
  do {
    if (mine > best) return false;
  } while (!g_source.compare_exchange_weak(best, mine));
  g_first_step.store(-1);
  return true;
}

// Order of boundaries: the end of step i-1 without a new one, the begin of step i. From 1.
std::uint64_t PositionOf(std::int64_t index, bool ends) {
  return index < 0 ? 1 : (static_cast<std::uint64_t>(index) << 1) + (ends ? 1 : 2);
}
// The last step that had begun at that position; -1 none.
std::int64_t StepAt(std::uint64_t position) { return static_cast<std::int64_t>(position >> 1) - 1; }

struct Decision {
  bool was_on = false, is_on = false;
  bool cut = false;
  bool splits = false;  // One window ends and the next begins here.
  WindowCause cause = WindowCause::kRunBegin;
};

WindowCause CauseOf(WindowKind kind) {
  return kind == WindowKind::kSteps      ? WindowCause::kSteps
         : kind == WindowKind::kSchedule ? WindowCause::kSchedule
                                         : WindowCause::kTrigger;
}

// The effect of the boundary before step `index`; `before`: the step before it, -1 none. Where a step only ends,
// recording may go off but not on, because another step may never begin.
Decision Decide(const WindowSpec& spec, const ProcessWindow& window, bool was_on, std::int64_t before,
                std::int64_t index, bool ends) {
  Decision decision{was_on, was_on, false, false, CauseOf(spec.kind)};
  if (const std::uint32_t stop = spec.stop_requested.load(std::memory_order_seq_cst); stop != 0) {
    decision.is_on = false;
    decision.cause = static_cast<WindowCause>(stop - 1);
    decision.cut = decision.cause == WindowCause::kSizeLimit;
    return decision;
  }
  const std::uint32_t start = spec.start_requested.load(std::memory_order_acquire);
  if (start != 0 && !ends && window.start_done.load(std::memory_order_relaxed) == 0) {
    decision.is_on = true;
    decision.cause = static_cast<WindowCause>(start - 1);
    return decision;
  }
  if (!StepsDecide(spec.kind)) return decision;
  const std::int64_t first = g_first_step.load(std::memory_order_relaxed);
  const StepPhase now = PhaseOf(spec, index, first);
  const StepPhase then = before < 0 ? StepPhase::kNone : PhaseOf(spec, before, first);
  // Only edges of the window switch: what lockstep_start and lockstep_stop set between them holds until the next edge.
  if (spec.kind == WindowKind::kTrigger || Records(now) != Records(then)) decision.is_on = Records(now);
  decision.cut = was_on && then == StepPhase::kRecord;
  if (ends && !was_on) decision.is_on = false;
  decision.splits = was_on && decision.is_on && then == StepPhase::kRecordLast && !ends;
  return decision;
}

void WriteSwitch(ProcessWindow& window, bool on, const Decision& decision, std::int64_t step, std::uint64_t ticks) {
  RecordSwitch(window, on, decision.cause, step, !on && decision.cut, ticks);
}

bool IsRecorded(std::int64_t step) {
  return Records(PhaseOf(lockstep_probe.segment->window, step, g_first_step.load(std::memory_order_relaxed)));
}

// Handles one boundary of the best source. Threads may come out of order: the highest number decides.
void Boundary(StepSource source, std::int64_t index, bool ends) {
  SegmentHeader& segment = *lockstep_probe.segment;
  const WindowSpec& spec = segment.window;
  RingPage* page = lockstep_ring();
  const ErrnoKeeper errno_keeper;
  if (page != nullptr) WatchThisThread();
  ProcessWindow* own = OwnWindow();
  if (own == nullptr) return;
  ProcessWindow& window = *own;
  if (source == StepSource::kExplicit) MarkLockstepUsed();
  std::int64_t none = -1;
  g_first_step.compare_exchange_strong(none, index);
  const std::uint64_t ticks = ring::Ticks();
  const std::uint8_t flags = ends ? kEnds : 0;

  Decision decision;
  bool decides = segment.agent_gone.load(std::memory_order_relaxed) == 0;
  const std::uint64_t position = PositionOf(index, ends);
  const std::uint64_t by_step = StepsDecide(spec.kind) ? kWindowDecides : 0;
  std::uint64_t state = window.state.load(std::memory_order_seq_cst);
  while (decides) {
    // The same thread may go back to lower numbers, which starts a new epoch.
    decides = position > state >> kWindowStepShift ||
              (page != nullptr && page == g_last_page.load(std::memory_order_relaxed));
    if (!decides) break;
    decision = Decide(spec, window, (state & kWindowOn) != 0, StepAt(state >> kWindowStepShift), index, ends);
    const std::uint64_t next = position << kWindowStepShift | (state & (kWindowDecides | kWindowEdges)) | by_step |
                               (decision.is_on ? kWindowOn : 0);
    if (window.state.compare_exchange_weak(state, next, std::memory_order_seq_cst)) break;
  }
  if (!decides) {
    // A thread that was held up after it took its number: the window that others have reached is not its step's.
    const bool on = FollowState(window);
    const std::int64_t reached = StepAt(window.state.load(std::memory_order_seq_cst) >> kWindowStepShift);
    const bool of_earlier = StepsDecide(spec.kind) && !IsRecorded(index) && IsRecorded(reached);
    if (on && !of_earlier) Write(source, index, flags, ticks);
    return;
  }
  g_last_page.store(page, std::memory_order_relaxed);
  for (ProcessWindow* each : {&window, &View().slot_window()}) {
    each->steps_live.fetch_add(1, std::memory_order_relaxed);
    each->next_step.store(index + (ends ? 0 : 1), std::memory_order_release);
  }
  if (decision.is_on) {
    if (spec.start_requested.load(std::memory_order_relaxed) != 0)
      window.start_done.store(1, std::memory_order_relaxed);
    if (!decision.was_on || decision.splits) {
      if (decision.splits) {
        Write(source, index, kEnds, ticks);
        WriteSwitch(window, false, decision, index, ticks);
      }
      WriteSwitch(window, true, decision, index, ticks);
    }
    Write(source, index, flags, ticks);
  } else if (decision.was_on) {
    // Later than any begin that was decided before it.
    const std::uint64_t end_ticks = ring::Ticks();
    Write(source, index, kEnds, end_ticks);
    WriteSwitch(window, false, decision, index, end_ticks);
  }
}

void Step(StepSource source, std::int64_t index) {
  if (!IsBestSource(source)) return;
  g_next_step[static_cast<std::uint32_t>(source)].store(index + 1, std::memory_order_relaxed);
  Boundary(source, index, false);
}

void NextStepOf(StepSource source) {
  if (!IsBestSource(source)) return;
  Boundary(source, g_next_step[static_cast<std::uint32_t>(source)].fetch_add(1, std::memory_order_relaxed), false);
}

// --step-range. A step lasts from the end of the previous range to the end of its own: what lies between two ranges
// (loading data) belongs to the later one. Ranges that overlap (requests served by several threads) are steps from
// begin to begin, and recording stays on until those of the window have ended.
// Returns whether recording was switched, at `ticks`.
bool FollowStepRanges(std::int64_t step, std::uint64_t ticks) {
  const WindowSpec& spec = lockstep_probe.segment->window;
  if (!StepsDecide(spec.kind)) return false;
  const auto wish = [](const ProcessWindow&) {
    // Who opens a range decides itself, a moment later.
    const auto unless_opening = [opening = g_opening_ranges.load(std::memory_order_seq_cst) > 0](RecordingWish wish) {
      return opening ? RecordingWish::kLeave : wish;
    };
    if (g_recorded_ranges.load(std::memory_order_seq_cst) > 0) return RecordingWish::kOn;
    const std::int64_t next = g_next_step[1].load(std::memory_order_seq_cst);
    if (!IsRecorded(next)) return unless_opening(RecordingWish::kOff);
    // Between two steps of a window it stays on, even while a range from before the window is still open.
    if (next > 0 && IsRecorded(next - 1)) return RecordingWish::kOn;
    const bool gap = g_step_ranges.load(std::memory_order_seq_cst) == 0;
    return unless_opening(gap ? RecordingWish::kOn : RecordingWish::kOff);
  };
  return SwitchRecording(wish, CauseOf(spec.kind), step, ticks);
}

// Requests of the agent apply to every source of boundaries.
void FollowRequests(std::int64_t step, std::uint64_t ticks) {
  const WindowSpec& window = lockstep_probe.segment->window;
  ProcessWindow* own = OwnWindow();
  if (own == nullptr) return;
  if (const std::uint32_t stop = window.stop_requested.load(std::memory_order_seq_cst); stop != 0) {
    const auto cause = static_cast<WindowCause>(stop - 1);
    SwitchRecording(false, cause, step, cause == WindowCause::kSizeLimit, ticks);
  } else if (const std::uint32_t start = window.start_requested.load(std::memory_order_acquire);
             start != 0 && own->start_done.exchange(1) == 0) {
    SwitchRecording(true, static_cast<WindowCause>(start - 1), step, false, ticks);
  }
}

void StoreProgress(std::int64_t next) {
  ProcessWindow* own = OwnWindow();
  if (own == nullptr) return;
  std::int64_t known = own->next_step.load(std::memory_order_relaxed);
  while (known < next && !own->next_step.compare_exchange_weak(known, next, std::memory_order_release)) {
  }
  own->steps_live.fetch_add(1, std::memory_order_relaxed);
  View().slot_window().next_step.store(next, std::memory_order_release);
  View().slot_window().steps_live.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

void ResetSteps() {
  for (auto& next : g_next_step) next.store(0);
  g_source.store(kSources);
  g_first_step.store(-1);
  g_last_page.store(nullptr);
  g_opening_ranges.store(0);
  g_step_ranges.store(0);
  g_recorded_ranges.store(0);
}

std::int64_t NextStep() {
  const std::uint32_t source = g_source.load(std::memory_order_acquire);
  return source < kSources ? g_next_step[source].load(std::memory_order_relaxed) : -1;
}

bool StepRangeOpened() {
  if (!IsBestSource(StepSource::kStepRange)) return false;
  SegmentHeader& segment = *lockstep_probe.segment;
  ProcessWindow* own = OwnWindow();
  if (own == nullptr) return false;
  const bool decide = StepsDecide(segment.window.kind);
  if (decide) {
    // Announced before it takes its number: otherwise another thread could see a step that is neither next nor open,
    // and end the window before its last step.
    g_opening_ranges.fetch_add(1, std::memory_order_seq_cst);
    std::uint64_t state = own->state.load(std::memory_order_seq_cst);
    while (!own->state.compare_exchange_weak(state, WithEdge(state), std::memory_order_seq_cst)) {
    }
  }
  const std::int64_t index = g_next_step[1].fetch_add(1, std::memory_order_seq_cst);
  std::int64_t none = -1;
  g_first_step.compare_exchange_strong(none, index);
  const bool recorded = IsRecorded(index);
  // The counter that keeps recording on is changed first, then the one that lets it go off.
  if (recorded) g_recorded_ranges.fetch_add(1, std::memory_order_seq_cst);
  g_step_ranges.fetch_add(1, std::memory_order_seq_cst);
  if (decide) g_opening_ranges.fetch_sub(1, std::memory_order_seq_cst);
  std::uint64_t ticks = ring::Ticks();
  const ErrnoKeeper errno_keeper;
  if (segment.agent_gone.load(std::memory_order_relaxed) == 0) {
    StoreProgress(index + 1);
    // Another thread may have switched recording on for this step, after `ticks`.
    if (!FollowStepRanges(recorded ? index : index + 1, ticks)) ticks = ring::Ticks();
    FollowRequests(index, ticks);
  }
  if ((own->state.load(std::memory_order_seq_cst) & kWindowOn) == 0) return recorded;
  // Ranges that begin outside of the window while its last ones are open do not count as its steps.
  if (recorded || !decide)
    Write(StepSource::kStepRange, index, 0, ticks);
  else if (IsRecorded(index - 1))
    Write(StepSource::kStepRange, index, kEnds, ticks);
  // The next one came first and ended this step before it was written.
  if (recorded && !IsRecorded(index + 1) && g_next_step[1].load(std::memory_order_seq_cst) > index + 1)
    Write(StepSource::kStepRange, index + 1, kEnds, ring::Ticks());
  return recorded;
}

void StepRangeClosed(bool recorded) {
  if (!IsBestSource(StepSource::kStepRange)) return;
  SegmentHeader& segment = *lockstep_probe.segment;
  const ErrnoKeeper errno_keeper;
  const std::int64_t next = g_next_step[1].load(std::memory_order_seq_cst);
  std::int32_t open = g_step_ranges.load(std::memory_order_seq_cst);
  do {
    if (open <= 0) return;
  } while (!g_step_ranges.compare_exchange_weak(open, open - 1, std::memory_order_seq_cst));
  const bool on = ring::Recording();
  std::int32_t of_window = recorded ? g_recorded_ranges.load(std::memory_order_seq_cst) : 0;
  while (of_window > 0 &&
         !g_recorded_ranges.compare_exchange_weak(of_window, of_window - 1, std::memory_order_seq_cst)) {
  }
  // Read now: whatever other threads began and ended before this range counted as the last one ended before this.
  const std::uint64_t ticks = ring::Ticks();
  // After the window's last range nobody else may be there to end its step: the thread that opens the next range may
  // find recording off.
  if (on && (open == 1 || of_window == 1)) Write(StepSource::kStepRange, next, kEnds, ticks);
  if (segment.agent_gone.load(std::memory_order_relaxed) != 0) return;
  FollowStepRanges(next, ticks);
  if (open == 1) FollowRequests(next, ticks);
}

namespace {

// lockstep_start and lockstep_stop: at once, at any point of a step. Only whole steps belong to a window.
void SwitchByHand(bool on) {
  if (lockstep_probe.segment == nullptr) return;
  const ErrnoKeeper errno_keeper;
  RingPage* page = lockstep_ring();
  MarkLockstepUsed();
  const std::int64_t next = NextStep();
  const std::int64_t step = next <= 0 ? -1 : on ? next : next - 1;
  SwitchRecording(on, WindowCause::kManual, step, false, ring::Ticks());
  if (page != nullptr) Rearm(*page);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) void lockstep_probe_step(void) {
  if (lockstep_probe.segment != nullptr) NextStepOf(StepSource::kExplicit);
}
__attribute__((visibility("default"))) void lockstep_probe_step_index(lockstep_int64 index) {
  if (lockstep_probe.segment != nullptr) Step(StepSource::kExplicit, index);
}
__attribute__((visibility("default"))) void lockstep_probe_step_end(void) {
  if (lockstep_probe.segment == nullptr || !IsBestSource(StepSource::kExplicit)) return;
  Boundary(StepSource::kExplicit, g_next_step[0].load(std::memory_order_relaxed), true);
}
// A framework's hook saw a step end and the next begin. Ignored once lockstep_step or a step range was used.
__attribute__((visibility("default"))) void lockstep_hook_step(void) {
  if (lockstep_probe.segment != nullptr) NextStepOf(StepSource::kHook);
}
__attribute__((visibility("default"))) void lockstep_probe_start(void) { SwitchByHand(true); }
__attribute__((visibility("default"))) void lockstep_probe_stop(void) { SwitchByHand(false); }
__attribute__((visibility("default"))) int lockstep_probe_recording(void) { return ring::Recording() ? 1 : 0; }

void lockstep_step(void) LS_ALIAS(lockstep_probe_step);
void lockstep_step_index(lockstep_int64 index) LS_ALIAS(lockstep_probe_step_index);
void lockstep_step_end(void) LS_ALIAS(lockstep_probe_step_end);
void lockstep_start(void) LS_ALIAS(lockstep_probe_start);
void lockstep_stop(void) LS_ALIAS(lockstep_probe_stop);
int lockstep_recording(void) noexcept LS_ALIAS(lockstep_probe_recording);
}

}  // namespace lockstep::probe
