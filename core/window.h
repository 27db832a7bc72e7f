#pragma once
// Capture windows: which steps, times or ranges are recorded. The agent writes the
// specification into the shared segment before the application starts; the probe
// decides at step boundaries and range edges, so that every rank takes the same
// steps however far apart the ranks run; the agent decides where time or a size
// decides. Each process has a switch of its own (ProcessWindow), because several ranks may
// share one agent. Identities (communicators, sequence numbers, steps) are counted outside
// windows as well.

#include <atomic>
#include <cstdint>

namespace lockstep {

enum class WindowKind : std::uint32_t {
  kAll = 0,       // Everything, until the size limit.
  kSteps = 1,     // --steps BEGIN:END or BEGIN:END/EVERY
  kSchedule = 2,  // --schedule wait=,warmup=,active=,repeat=,skip_first=
  kRange = 3,     // --range SOURCE:NAME
  kTimer = 4,     // --delay, --duration
  kManual = 5,    // lockstep_start() and lockstep_stop()
  kTrigger = 6,   // A signal or the trigger file.
};

// Why recording went on or off. In rank files: windows.begin_cause, end_cause.
enum class WindowCause : std::uint8_t {
  kRunBegin = 0,
  kSteps = 1,
  kSchedule = 2,
  kRange = 3,
  kTimer = 4,
  kManual = 5,
  kTrigger = 6,
  kSizeLimit = 7,
  kRunEnd = 8,
};

inline constexpr std::uint32_t kWindowNameBytes = 128;

// WindowSpec::range_source beside those of the table ranges.
inline constexpr std::uint32_t kRangeSourceAny = 255, kRangeSourceCuda = 254;

// Trivially copyable except for the atomics, which are in shared memory.
struct WindowSpec {
  WindowKind kind;
  std::uint32_t range_source;  // kRange: as in the table ranges, or kRangeSource...
  // kSteps: [begin, end), again every `every` steps; 0 once.
  std::int64_t begin_step, end_step, every_steps;
  // kSchedule, as torch.profiler.schedule: skip_first once, then repeat x (wait, warmup, active); repeat 0: for ever.
  std::int64_t skip_first, wait, warmup, active, repeat;
  std::int64_t delay_ns, duration_ns;  // kTimer, and kTrigger without live steps; duration 0: to the end.
  std::uint64_t range_count;           // kRange: windows to record, 0 all.
  char range_name[kWindowNameBytes];   // kRange: NAME or NAME@DOMAIN; "" with kRangeSourceCuda.
  char step_range[kWindowNameBytes];   // --step-range: each push of a range of this name is a step boundary; "" none.
  // kTrigger: [begin, end) armed by the agent, the same on every rank; -1 none.
  std::atomic<std::int64_t> armed_begin, armed_end;
  std::atomic<std::uint32_t> stop_requested;  // WindowCause + 1: the agent wants recording off at the next boundary.
  // WindowCause + 1: the agent wants recording on at the next boundary of each process; once per run.
  std::atomic<std::uint32_t> start_requested;
};

// The last switches of recording, for sources whose records arrive long after the event: ticks << 1 | on.
inline constexpr std::uint32_t kSwitchHistory = 64;
struct SwitchHistory {
  std::atomic<std::uint32_t> count;  // Of all time; the n-th is in at[n % kSwitchHistory].
  std::uint32_t reserved;
  std::atomic<std::uint64_t> at[kSwitchHistory];
  // Called by the thread that turned the switch. Wait-free.
  void Note(bool on, std::uint64_t ticks) {
    at[count.fetch_add(1) % kSwitchHistory].store(ticks << 1 | (on ? 1 : 0), std::memory_order_release);
  }
};

// Whether one process records, and how far it is. It begins as the process that started it is, if that one is recorded,
// else as the slot is, and goes on with it until its own steps, ranges or calls decide. In shared memory.
struct alignas(64) ProcessWindow {
  // The switch, IsOn: off, identities are counted and nothing is written. Follows `state`; above the lowest bit, how
  // often it was set.
  std::atomic<std::uint32_t> recording;
  std::uint32_t starter_generation;  // Of the entry below.
  std::uint32_t starter;             // Entry of the process that started this one, plus 1; 0: none that is recorded.
  // kWindowOn: recording is wanted; kWindowDecides; how often ranges began or ended (modulo 256); above them the last
  // boundary that decided, plus 1. One word, so that threads which announce boundaries or ranges out of turn cannot
  // undo each other.
  std::atomic<std::uint64_t> state;
  // These also in the slot's window, for all its processes together.
  std::atomic<std::int64_t> next_step;      // The step that the next boundary will begin; 0 before the first one.
  std::atomic<std::uint32_t> steps_live;    // Boundaries seen so far.
  std::atomic<std::uint64_t> ranges_begun;  // kRange: of range_name, outermost ones.

  std::atomic<std::uint32_t> windows_begun;  // Of this process.
  std::atomic<std::uint32_t> start_done;     // WindowSpec::start_requested needs no answer any more.
  std::atomic<std::int32_t> ranges_open;     // kRange: not ended yet; of the first range_count if that is set.
  SwitchHistory switches;
};
// Bits of ProcessWindow::state. kWindowDecides: the process itself decided, so that it goes with no other any more.
inline constexpr std::uint64_t kWindowOn = 1, kWindowDecides = 2, kWindowEdge = 4, kWindowEdges = 255 * kWindowEdge;
inline constexpr std::uint32_t kWindowStepShift = 10;
// The state with one more edge of a range: whoever judged by the counters before it cannot change it any more.
inline std::uint64_t WithEdge(std::uint64_t state) noexcept {
  return (state & ~kWindowEdges) | ((state + kWindowEdge) & kWindowEdges);
}

// Changes the lowest bit of the state unless it is `on` already; `undecided`: only of a process that has not decided.
inline bool TurnState(ProcessWindow& window, bool on, bool undecided = false) noexcept {
  std::uint64_t state = window.state.load(std::memory_order_seq_cst);
  do {
    if (((state & kWindowOn) != 0) == on || (undecided && (state & kWindowDecides) != 0)) return false;
  } while (!window.state.compare_exchange_weak(state, state ^ kWindowOn, std::memory_order_seq_cst));
  return true;
}
// Whether the switch is on: what a recorder asks before each event.
inline bool IsOn(const ProcessWindow& window) noexcept {
  return (window.recording.load(std::memory_order_relaxed) & 1) != 0;
}
// Sets the switch to the value of the state, which is returned. A thread that changed the state may be preempted before
// it does so itself, so every thread that depends on the switch helps; one that read the state before cannot set it
// back, not for a moment, because each setting is counted. Thread: any, without locks.
inline bool FollowState(ProcessWindow& window) noexcept {
  std::uint32_t set = window.recording.load(std::memory_order_seq_cst);
  for (;;) {
    const bool on = (window.state.load(std::memory_order_seq_cst) & kWindowOn) != 0;
    const std::uint32_t next = ((set + 2) & ~1u) | (on ? 1 : 0);
    if (!window.recording.compare_exchange_weak(set, next, std::memory_order_seq_cst)) continue;
    set = next;
    if (((window.state.load(std::memory_order_seq_cst) & kWindowOn) != 0) == on) return on;
  }
}

// The phase that torch.profiler.ProfilerAction gives a step.
enum class StepPhase : std::uint8_t {
  kNone = 0,
  kWarmup = 1,  // Sources on, records off: as kNone, because sources are always on.
  kRecord = 2,
  kRecordLast = 3,  // The last step of its window.
};
inline bool Records(StepPhase phase) { return phase >= StepPhase::kRecord; }

// Whether the step numbers decide at all; if not, phases have no meaning.
inline bool StepsDecide(WindowKind kind) {
  return kind == WindowKind::kSteps || kind == WindowKind::kSchedule || kind == WindowKind::kTrigger;
}
// A pure function except for the two armed numbers. `first_step`: the first step of the process, from which a schedule
// counts (numbers of --steps and triggers are absolute). Thread: any, wait-free.
StepPhase PhaseOf(const WindowSpec& spec, std::int64_t step, std::int64_t first_step) noexcept;
// The number of steps in all its windows together; -1: unlimited or not defined by steps.
std::int64_t StepsWanted(const WindowSpec& spec) noexcept;

}  // namespace lockstep
