#pragma once
// Capture windows: which steps, times or ranges are recorded. The agent writes the
// specification into the shared segment before the application starts; the probe
// decides at step boundaries and range edges, so that every rank takes the same
// steps however far apart the ranks run; the agent decides where time or a size
// decides. Identities (communicators, sequence numbers, steps) are counted outside
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
  std::atomic<std::int64_t> next_step;        // The step that the next boundary will begin; 0 before the first one.
  std::atomic<std::uint32_t> steps_live;      // Boundaries seen so far, saturated.
  std::atomic<std::uint32_t> stop_requested;  // WindowCause + 1: the agent wants recording off at the next boundary.
  std::atomic<std::uint32_t> windows_begun;   // Of this rank.
  // WindowCause + 1: the agent wants recording on at the next boundary.
  std::atomic<std::uint32_t> start_requested;
  // Bit 0: recording is wanted (SegmentHeader::recording follows); above it: the last boundary that decided, plus 1.
  // One word, so that threads which announce boundaries out of turn cannot undo each other.
  std::atomic<std::uint64_t> state;
  std::atomic<std::int64_t> step_owner;     // The process whose steps decide; 0: none yet.
  std::atomic<std::uint64_t> ranges_begun;  // kRange: of range_name, outermost ones.
  std::atomic<std::int32_t> ranges_open;    // kRange: of those, not ended yet; of the first range_count if that is set.
};

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
