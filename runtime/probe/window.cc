// Switching recording, and windows that follow ranges. Windows that follow steps: steps.cc.

#include "runtime/probe/window.h"

#include <string.h>

#include "runtime/probe/ring.h"

namespace lockstep::probe {
namespace {

// NAME, or NAME@DOMAIN.
bool NameMatches(const char* wanted, const char* domain, const char* name) {
  if (name == nullptr || wanted[0] == 0) return false;
  if (strcmp(wanted, name) == 0) return true;
  const char* at = strrchr(wanted, '@');
  if (at == nullptr || domain == nullptr) return false;
  const auto bytes = static_cast<std::size_t>(at - wanted);
  return strncmp(wanted, name, bytes) == 0 && name[bytes] == 0 && strcmp(at + 1, domain) == 0;
}

// Recording follows a counter; threads that change it at the same moment all end up with the last value.
void FollowRanges(WindowSpec& window) {
  for (;;) {
    const bool on = window.ranges_open.load(std::memory_order_seq_cst) > 0;
    SwitchRecording(on, WindowCause::kRange, NextStep(), false, ring::Ticks());
    if ((window.ranges_open.load(std::memory_order_seq_cst) > 0) == on) return;
  }
}

// Counts one more range with the window's name; returns whether it counts.
bool BeginRange(WindowSpec& window) {
  const std::uint64_t number = window.ranges_begun.fetch_add(1, std::memory_order_relaxed);
  if (window.range_count != 0 && number >= window.range_count) return false;
  window.ranges_open.fetch_add(1, std::memory_order_seq_cst);
  FollowRanges(window);
  return true;
}

void EndRange(WindowSpec& window) {
  std::int32_t open = window.ranges_open.load(std::memory_order_relaxed);
  do {
    if (open <= 0) return;  // It was opened before ranges were followed, or exceeds the count.
  } while (!window.ranges_open.compare_exchange_weak(open, open - 1, std::memory_order_seq_cst));
  FollowRanges(window);
}

bool IsWindowRange(const WindowSpec& window, std::uint8_t source, const char* domain, const char* name) {
  if (window.kind != WindowKind::kRange) return false;
  if (window.range_source != kRangeSourceAny && window.range_source != source) return false;
  return NameMatches(window.range_name, domain, name);
}

std::atomic<void (*)(bool)> g_hooks[4] = {};

}  // namespace

void AnnounceSwitch(bool on) {
  for (auto& each : g_hooks)
    if (auto* hook = each.load(std::memory_order_acquire); hook != nullptr) hook(on);
}

bool SwitchRecording(bool on, WindowCause cause, std::int64_t step, bool cut, std::uint64_t ticks) {
  SegmentHeader* segment = lockstep_probe.segment;
  if (segment == nullptr || segment->agent_gone.load(std::memory_order_relaxed) != 0) return false;
  WindowSpec& window = segment->window;
  std::uint64_t state = window.state.load(std::memory_order_seq_cst);
  do {
    if (((state & 1) != 0) == on) {
      // The thread that decided may not have reached the switch yet, and the caller's next record must not wait for it.
      FollowState(*segment);
      return false;
    }
    if (on && window.stop_requested.load(std::memory_order_seq_cst) != 0) return false;
  } while (!window.state.compare_exchange_weak(state, state ^ 1, std::memory_order_seq_cst));
  RecordSwitch(on, cause, step, cut, ticks);
  return true;
}

void RangeOpened(std::uint8_t source, const char* domain, const char* name, bool on_thread) {
  SegmentHeader* segment = lockstep_probe.segment;
  if (segment == nullptr) return;
  WindowSpec& window = segment->window;
  RingPage* page = on_thread ? lockstep_ring() : nullptr;
  if (IsWindowRange(window, source, domain, name)) {
    // A request that calls itself counts as one request.
    if (page == nullptr) {
      BeginRange(window);
    } else if (page->producer.window_depth++ == 0) {
      page->producer.window_counts = BeginRange(window) ? 1 : 0;
    }
  }
  if (NameMatches(window.step_range, domain, name)) {
    if (page == nullptr) {
      StepRangeOpened();
    } else if (page->producer.step_depth++ == 0) {
      page->producer.step_counts = StepRangeOpened() ? 1 : 0;
    }
  }
}

void RangeClosed(std::uint8_t source, const char* domain, const char* name, bool on_thread) {
  SegmentHeader* segment = lockstep_probe.segment;
  if (segment == nullptr) return;
  WindowSpec& window = segment->window;
  RingPage* page = on_thread ? lockstep_ring() : nullptr;
  // The step ends within the window, so its end is reported first.
  if (NameMatches(window.step_range, domain, name)) {
    if (page == nullptr) {
      StepRangeClosed(true);
    } else if (page->producer.step_depth > 0 && --page->producer.step_depth == 0) {
      StepRangeClosed(page->producer.step_counts != 0);
    }
  }
  if (IsWindowRange(window, source, domain, name)) {
    const bool outermost = page == nullptr || (page->producer.window_depth > 0 && --page->producer.window_depth == 0 &&
                                               page->producer.window_counts != 0);
    if (outermost) EndRange(window);
  }
}

}  // namespace lockstep::probe

extern "C" bool lockstep::lockstep_on_switch(void (*hook)(bool on)) {
  for (auto& each : probe::g_hooks) {
    void (*none)(bool) = nullptr;
    if (each.compare_exchange_strong(none, hook, std::memory_order_acq_rel) || none == hook) return true;
  }
  return false;
}

// cudaProfilerStart (1) and cudaProfilerStop (0): a range without a name. They do not nest.
extern "C" __attribute__((visibility("default"))) void lockstep_cuda_profiler(int on) {
  using namespace lockstep;
  using namespace lockstep::probe;
  SegmentHeader* segment = lockstep_probe.segment;
  if (segment == nullptr) return;
  WindowSpec& window = segment->window;
  if (window.kind != WindowKind::kRange || window.range_source != kRangeSourceCuda) return;
  if (on == 0)
    EndRange(window);
  else if (window.ranges_open.load(std::memory_order_relaxed) == 0)
    BeginRange(window);
}
