// Switching recording, and windows that follow ranges. Windows that follow steps: steps.cc.

#include "runtime/probe/window.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>

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

void FollowRanges() {
  const auto wish = [](const ProcessWindow& window) {
    return window.ranges_open.load(std::memory_order_seq_cst) > 0 ? RecordingWish::kOn : RecordingWish::kOff;
  };
  SwitchRecording(wish, WindowCause::kRange, NextStep(), ring::Ticks());
}

// Counts one more range with the window's name; returns whether it counts.
bool BeginRange() {
  ProcessWindow* own = OwnWindow();
  if (own == nullptr) return false;
  ProcessWindow& window = *own;
  const std::uint64_t number = window.ranges_begun.fetch_add(1, std::memory_order_relaxed),
                      most = lockstep_probe.segment->window.range_count;
  View().slot_window().ranges_begun.fetch_add(1, std::memory_order_relaxed);
  if (most != 0 && number >= most) return false;
  window.ranges_open.fetch_add(1, std::memory_order_seq_cst);
  FollowRanges();
  return true;
}

void EndRange() {
  ProcessWindow* own = OwnWindow();
  if (own == nullptr) return;
  ProcessWindow& window = *own;
  std::int32_t open = window.ranges_open.load(std::memory_order_relaxed);
  do {
    if (open <= 0) return;  // It was opened before ranges were followed, or exceeds the count.
  } while (!window.ranges_open.compare_exchange_weak(open, open - 1, std::memory_order_seq_cst));
  FollowRanges();
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

SegmentView View() { return {reinterpret_cast<std::byte*>(lockstep_probe.segment), lockstep_probe.segment_bytes}; }

ProcessWindow* OwnWindow() {
  const ProcessEntry* entry = lockstep_process();
  return entry == nullptr ? nullptr : View().windows() + (entry - View().processes());
}

ProcessWindow* WindowAtBegin(std::uint32_t& starter) {
  const SegmentView view = View();
  const std::uint32_t used = view.header().processes_used.load();
  const std::int64_t self = getpid(), parent = getppid();
  starter = 0;
  for (std::uint32_t i = 0; i < used && i < kMaxProcesses; ++i) {
    const ProcessEntry& entry = view.processes()[i];
    if (entry.state.load(std::memory_order_acquire) != SlotState::kActive) continue;
    if (entry.pid == self && entry.parent_pid == parent) {
      starter = i + 1;
      break;
    }
    if (entry.pid == parent) starter = i + 1;
  }
  return starter == 0 ? &view.slot_window() : view.windows() + (starter - 1);
}

void BeginWindow(std::uint32_t entry, const ProcessWindow& from, std::uint32_t starter) {
  const SegmentView view = View();
  ProcessWindow& window = view.windows()[entry];
  std::uint64_t kept = kWindowOn;
  if (starter != 0 && view.processes()[starter - 1].pid == getpid()) {
    // The same process before an exec: what it decided stands, and whoever started it started this program.
    kept |= kWindowDecides;
    window.starter_generation = from.starter_generation;
    window.starter = from.starter;
  } else {
    window.starter_generation = starter == 0 ? 0 : view.processes()[starter - 1].generation;
    window.starter = starter;
  }
  for (auto* number : {&window.steps_live, &window.windows_begun, &window.start_done, &window.switches.count})
    number->store(0, std::memory_order_relaxed);
  for (auto& at : window.switches.at) at.store(0, std::memory_order_relaxed);
  window.next_step.store(0, std::memory_order_relaxed);
  window.ranges_open.store(0, std::memory_order_relaxed);
  window.ranges_begun.store(0, std::memory_order_relaxed);
  window.state.store(from.state.load(std::memory_order_seq_cst) & kept, std::memory_order_seq_cst);
  FollowState(window);
  lockstep_probe.window.store(&window, std::memory_order_release);
}

namespace {

// Processes that this one started, directly or by others that have not decided either, switch with it.
void TakeAlong(const ProcessWindow& window, bool on, std::uint64_t ticks) {
  const SegmentView view = View();
  const std::uint32_t used = std::min(view.header().processes_used.load(), kMaxProcesses);
  const auto self = static_cast<std::uint32_t>(&window - view.windows());
  for (std::uint32_t i = 0; i < used; ++i) {
    // Up from the process, as far as none decides. The table may be damaged: no more than its length.
    std::uint32_t at = i;
    for (std::uint32_t depth = 0; at != self && depth < kMaxProcesses; ++depth) {
      const ProcessWindow& each = view.windows()[at];
      if (view.processes()[at].state.load(std::memory_order_acquire) != SlotState::kActive) break;
      if ((each.state.load(std::memory_order_relaxed) & kWindowDecides) != 0) break;
      if (each.starter == 0 || each.starter > used ||
          view.processes()[each.starter - 1].generation != each.starter_generation)
        break;
      at = each.starter - 1;
    }
    if (i == self || at != self || !TurnState(view.windows()[i], on, true)) continue;
    view.windows()[i].switches.Note(on, ticks);
    FollowState(view.windows()[i]);
  }
}

}  // namespace

void RecordSwitch(ProcessWindow& window, bool on, WindowCause cause, std::int64_t step, bool cut, std::uint64_t ticks) {
  const ErrnoKeeper errno_keeper;
  RingPage* page = lockstep_ring();
  const WindowRecord record{
      {RecordKind::kWindow, static_cast<std::uint8_t>(on ? 1 : 0), 1}, cause, cut, 0, ticks, step, 0};
  window.switches.Note(on, ticks);
  if (on)
    window.windows_begun.fetch_add(1, std::memory_order_relaxed);
  else
    SlowWriter(1).Append(&record, 1, 1);
  const bool now_on = FollowState(window);
  if (on) SlowWriter(1).Append(&record, 1, 1);
  if (page != nullptr) Rearm(*page);
  TakeAlong(window, on, ticks);
  AnnounceSwitch(now_on);
}

namespace {

// `wish` and `edge`: as SwitchRecording(RecordingWish...) has them.
template <class Wish>
bool Switch(Wish wish, bool edge, WindowCause cause, std::int64_t step, bool cut, std::uint64_t ticks) {
  SegmentHeader* segment = lockstep_probe.segment;
  if (segment == nullptr || segment->agent_gone.load(std::memory_order_relaxed) != 0) return false;
  ProcessWindow* window = OwnWindow();
  if (window == nullptr) return false;
  // What the agent asked for decides nothing.
  const bool own = cause != WindowCause::kTimer && cause != WindowCause::kSizeLimit;
  std::uint64_t state = window->state.load(std::memory_order_seq_cst), next;
  bool on;
  do {
    const RecordingWish wanted = wish(*window);
    const bool is_on = (state & kWindowOn) != 0;
    on = wanted == RecordingWish::kLeave ? is_on : wanted == RecordingWish::kOn;
    if (on && !is_on && segment->window.stop_requested.load(std::memory_order_seq_cst) != 0) return false;
    next = (on ? state | kWindowOn : state & ~kWindowOn) | (own ? kWindowDecides : 0);
    if (edge) next = WithEdge(next);
  } while (!window->state.compare_exchange_weak(state, next, std::memory_order_seq_cst));
  if (((state & kWindowOn) != 0) == on) {
    // The thread that decided may not have reached the switch yet, and the caller's next record must not wait for it.
    FollowState(*window);
    return false;
  }
  RecordSwitch(*window, on, cause, step, cut, ticks);
  return true;
}

}  // namespace

bool SwitchRecording(bool on, WindowCause cause, std::int64_t step, bool cut, std::uint64_t ticks) {
  const auto wish = [on](const ProcessWindow&) { return on ? RecordingWish::kOn : RecordingWish::kOff; };
  return Switch(wish, false, cause, step, cut, ticks);
}
bool SwitchRecording(RecordingWish (*wish)(const ProcessWindow&), WindowCause cause, std::int64_t step,
                     std::uint64_t ticks) {
  return Switch(wish, true, cause, step, false, ticks);
}

void RangeOpened(std::uint8_t source, const char* domain, const char* name, bool on_thread) {
  SegmentHeader* segment = lockstep_probe.segment;
  if (segment == nullptr) return;
  WindowSpec& window = segment->window;
  RingPage* page = on_thread ? lockstep_ring() : nullptr;
  if (IsWindowRange(window, source, domain, name)) {
    // A request that calls itself counts as one request.
    if (page == nullptr) {
      BeginRange();
    } else if (page->producer.window_depth++ == 0) {
      page->producer.window_counts = BeginRange() ? 1 : 0;
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
    if (outermost) EndRange();
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
    EndRange();
  else if (ProcessWindow* own = OwnWindow(); own != nullptr && own->ranges_open.load(std::memory_order_relaxed) == 0)
    BeginRange();
}
