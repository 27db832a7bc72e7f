#pragma once
// The capture window inside the application (core/window.h): what switches recording
// on and off at step boundaries, range edges and calls of lockstep_start and
// lockstep_stop; and what range sources report to it.
//
// Recording is one switch per slot. All who turn it do so through WindowSpec::state,
// one word: the thread that changes its lowest bit writes the WindowRecord, so records
// and switch agree however many threads (or processes, or the agent) use it at once.

#include "core/ring_writer.h"

namespace lockstep::probe {

// Whether any range matters. False costs a load; sources then need not call the others. The same all through
// the process's life: the agent sets the names before it starts the application.
inline bool WindowWatchesRanges() { return lockstep_probe.watches_ranges; }

// A range was opened or closed on the calling thread. `source` as in the table ranges;
// `domain` and `name` may be null. Called before the range's own begin is recorded and
// after its end was, whether recording is on or off; may switch recording. Sources call
// them for every range while WindowWatchesRanges(), so a range whose name is kept in a
// per-address cache must not bypass them. `on_thread` false: start/end ranges, which may
// be closed by another thread and need not nest. Thread: any, without locks.
void RangeOpened(std::uint8_t source, const char* domain, const char* name, bool on_thread = true);
void RangeClosed(std::uint8_t source, const char* domain, const char* name, bool on_thread = true);

// Sources of steps, best first, as in the table steps. Once a better one was seen the others are ignored.
enum class StepSource : std::uint8_t { kExplicit = 0, kStepRange = 1, kHook = 2 };

// Switches recording as requested at this moment. `step` as in WindowRecord. Returns false if it was in that state
// already, or may not go on again (the size limit, the end of a timer).
bool SwitchRecording(bool on, WindowCause cause, std::int64_t step, bool cut, std::uint64_t ticks);

// Writes the WindowRecord of a change of WindowSpec::state by this thread; the switch and the thread's ring follow.
void RecordSwitch(bool on, WindowCause cause, std::int64_t step, bool cut, std::uint64_t ticks);
// Sets the switch to the value of WindowSpec::state, which is returned. A thread that changed the state may be
// preempted before it does so itself, so every thread that depends on the switch helps. Thread: any, without locks.
bool FollowState(SegmentHeader& segment);

// Calls the hooks of lockstep_on_switch.
void AnnounceSwitch(bool on);

// steps.cc: --step-range. Returns whether the step is to be recorded.
bool StepRangeOpened();
void StepRangeClosed(bool recorded);

// The number of the process's next boundary; -1 while no step was seen.
std::int64_t NextStep();

}  // namespace lockstep::probe
