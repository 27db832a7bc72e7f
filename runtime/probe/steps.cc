// lockstep.h in the library: steps and the recording window.

#include <time.h>

#include "runtime/probe/ring.h"
#include "runtime/probe/window.h"

#define LOCKSTEP_BUILDING_PROBE
#include "runtime/lockstep.h"

// GCC calls through the symbol's alias: one function, two names.
#define LS_ALIAS(name) __attribute__((alias(#name), visibility("default")))

namespace lockstep::probe {
namespace {

std::atomic<std::int64_t> g_next_step{0};

std::int64_t ThreadCpuNs() {
  timespec now{};
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0) return -1;
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

void Step(std::int64_t index, std::uint8_t flags) {
  if (lockstep_probe.segment == nullptr) return;
  RingPage* page = lockstep_ring();
  MarkLockstepUsed();
  if (!ring::Recording()) return;
  if (page == nullptr) {
    SlowWriter(1).FlushPolls();
    return;
  }
  const ErrnoKeeper errno_keeper;
  const StepRecord record{{RecordKind::kStep, flags, 1}, 0, index, ring::Ticks(), ThreadCpuNs()};
  SlowWriter(1).Append(&record, 1, 1);
}

void SetRecording(std::uint32_t on) {
  SegmentHeader* segment = lockstep_probe.segment;
  if (segment == nullptr || segment->agent_gone.load(std::memory_order_relaxed) != 0) return;
  RingPage* page = lockstep_ring();
  MarkLockstepUsed();
  segment->recording.store(on, std::memory_order_relaxed);
  if (page != nullptr) Rearm(*page);
}

}  // namespace

void ResetSteps() { g_next_step.store(0); }

// --range and --step-range: window.h.
void RangeOpened(std::uint8_t, const char*, const char*) {}
void RangeClosed(std::uint8_t, const char*, const char*) {}

extern "C" {

__attribute__((visibility("default"))) void lockstep_probe_step(void) {
  if (lockstep_probe.segment != nullptr) Step(g_next_step.fetch_add(1, std::memory_order_relaxed), 0);
}
__attribute__((visibility("default"))) void lockstep_probe_step_index(lockstep_int64 index) {
  g_next_step.store(index + 1, std::memory_order_relaxed);
  Step(index, 0);
}
__attribute__((visibility("default"))) void lockstep_probe_step_end(void) {
  Step(g_next_step.load(std::memory_order_relaxed), 0x80);
}
__attribute__((visibility("default"))) void lockstep_probe_start(void) { SetRecording(1); }
__attribute__((visibility("default"))) void lockstep_probe_stop(void) { SetRecording(0); }
__attribute__((visibility("default"))) int lockstep_probe_recording(void) { return ring::Recording() ? 1 : 0; }

void lockstep_step(void) LS_ALIAS(lockstep_probe_step);
void lockstep_step_index(lockstep_int64 index) LS_ALIAS(lockstep_probe_step_index);
void lockstep_step_end(void) LS_ALIAS(lockstep_probe_step_end);
void lockstep_start(void) LS_ALIAS(lockstep_probe_start);
void lockstep_stop(void) LS_ALIAS(lockstep_probe_stop);
int lockstep_recording(void) noexcept LS_ALIAS(lockstep_probe_recording);
}

}  // namespace lockstep::probe
