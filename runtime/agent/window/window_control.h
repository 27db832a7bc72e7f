#pragma once
// What the agent decides about the capture window: where time, a request from outside
// or a size decides. It asks the probe to switch at the next step boundary, or
// switches itself where no step is live. Also arms the same steps on all ranks:
//
// The first agent that sees a signal or RUN/trigger writes RUN/.window-N, whole and
// only if it is not there yet, with the step numbers: far enough ahead of its own
// step that ranks a second apart have not passed them. The others look for that file
// and arm the same numbers. Without a shared directory each node computes its own,
// and the merge takes what they have in common.

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "core/event_clock.h"
#include "core/ring_layout.h"
#include "runtime/agent/spool/spool_writer.h"
#include "runtime/agent/window/window_options.h"

namespace lockstep::agent {

inline constexpr std::int64_t kSecondNs = 1'000'000'000;

// Thread: the agent's main loop only.
class WindowControl {
 public:
  struct Setup {
    std::string run_dir;   // Absolute.
    bool included = true;  // --ranks.
    bool speaks = false;   // This agent prints the lines that concern the run.
    std::uint64_t max_bytes = 0;
    std::function<void(const std::string&)> say;
  };
  WindowControl(const WindowPlan& plan, const SegmentView& segment, const EventClock& clock, SpoolWriter& spool,
                Setup setup);

  // Before the application starts.
  void Begin();
  // --on-signal.
  void Request() { requested_ = true; }
  // `bytes` of the spool so far.
  void Tick(std::int64_t now_ns, std::uint64_t bytes);
  // When Tick should be called again at the latest; INT64_MAX: any time.
  std::int64_t due_ns(std::int64_t now_ns) const;
  // The application has ended: closes the window.
  void Finish();

  // Of the process that is furthest; where none runs any more, the last one. 0 before the first step.
  std::int64_t next_step() const;
  bool limit_reached() const { return limit_since_ns_ != 0; }
  bool ranges_missing() const;  // No range with the window's name was opened.
  bool steps_missing() const;   // Windows by step were requested, and no step was seen.
  std::uint64_t hard_limit_bytes() const;

 private:
  void SwitchNow(bool on, WindowCause cause, bool cut);
  // What processes begin with.
  bool SlotRecords() const { return (segment_.slot_window().state.load(std::memory_order_acquire) & kWindowOn) != 0; }
  // Whether a process that marks steps is still in the other state: it switches at its next boundary.
  bool BoundaryMissing(bool on) const;
  bool AllPast(std::int64_t step) const;
  std::uint32_t StepsSeen() const { return segment_.slot_window().steps_live.load(std::memory_order_relaxed); }
  template <typename F>
  void ForEachProcess(F&& f) const;
  void FollowSteps(std::int64_t now_ns);
  bool StepsLive(std::int64_t now_ns) const;
  double StepsPerSecond() const;
  void FollowTimer(std::int64_t now_ns);
  void FollowRequests(std::int64_t now_ns);
  void AnswerRequest(std::int64_t now_ns);
  bool Adopt(const std::string& text, std::int64_t now_ns);
  bool Busy(std::int64_t now_ns) const;
  void FollowSize(std::int64_t now_ns, std::uint64_t bytes);
  void Project(std::uint64_t bytes);
  void Say(const std::string& text) const {
    if (setup_.speaks) setup_.say(text);
  }

  const WindowPlan& plan_;
  SegmentView segment_;
  WindowSpec& window_;
  EventClock clock_;
  SpoolWriter& spool_;
  Setup setup_;

  std::int64_t begin_ns_ = 0;
  std::deque<std::pair<std::int64_t, std::int64_t>> steps_;  // (ns, next step) of the last seconds.
  std::uint32_t seen_live_ = 0;
  std::int64_t last_step_ns_ = 0;

  std::int64_t asked_ns_ = 0;     // kTimer: since when the switch is due; 0 if it is not yet.
  std::int64_t timer_on_ns_ = 0;  // When recording was found to be on.
  std::int64_t off_at_ns_ = 0;    // kTrigger without steps.
  bool timer_over_ = false;

  bool requested_ = false;
  std::uint32_t request_ = 0;  // Number N of the last RUN/.window-N that was adopted.
  std::int64_t next_poll_ns_ = 0;

  std::int64_t limit_since_ns_ = 0;
  std::uint64_t last_bytes_ = 0;
  bool projected_ = false;
  std::uint64_t bytes_at_on_ = 0;
  std::int64_t step_at_on_ = -1;
};

}  // namespace lockstep::agent
