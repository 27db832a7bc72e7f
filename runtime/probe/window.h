#pragma once
// The capture window inside the application (core/window.h): what switches recording
// on and off at step boundaries, range edges and calls of lockstep_start and
// lockstep_stop; and what range sources report to it.
//
// Recording is one switch per process. All who turn it do so through ProcessWindow::state,
// one word: the thread that changes its lowest bit writes the WindowRecord, so records
// and switch agree however many threads (or the agent) use it at once. Processes that this
// one started, and that have decided nothing themselves, go with it.

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

// As above for what counters of open ranges want. `wish` reads them after the state and is asked again if an edge of
// another range came in between, so that nobody switches by counters that are no longer true: a range that began
// meanwhile would be lost. Call it after the own edge was counted.
enum class RecordingWish : std::uint8_t { kOff, kOn, kLeave };
bool SwitchRecording(RecordingWish (*wish)(const ProcessWindow& window), WindowCause cause, std::int64_t step,
                     std::uint64_t ticks);

// Writes the WindowRecord of a change of `window`'s state by this thread; the switch, the thread's ring and the
// processes that go with this one follow.
void RecordSwitch(ProcessWindow& window, bool on, WindowCause cause, std::int64_t step, bool cut, std::uint64_t ticks);

SegmentView View();  // lockstep_probe.segment is not null.
// This process's window; null if the process is not profiled or the table of processes is full.
ProcessWindow* OwnWindow();
// The window that this process begins with: that of the process that started it, or of its own program before an exec,
// else the slot's. `starter`: which entry that is, plus 1; 0 the slot's.
ProcessWindow* WindowAtBegin(std::uint32_t& starter);
// Makes the window of the entry that this process has just claimed. `from` and `starter` as WindowAtBegin gave them
// before.
void BeginWindow(std::uint32_t entry, const ProcessWindow& from, std::uint32_t starter);

// Calls the hooks of lockstep_on_switch.
void AnnounceSwitch(bool on);

// steps.cc: --step-range. Returns whether the step is to be recorded.
bool StepRangeOpened();
void StepRangeClosed(bool recorded);

// The number of the process's next boundary; -1 while no step was seen.
std::int64_t NextStep();

}  // namespace lockstep::probe
