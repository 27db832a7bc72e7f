#include "examples/common/pace.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <utility>

namespace lockstep::example {

std::int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

void SleepPrecisely() { prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); }

void SleepUntil(std::int64_t deadline_ns) {
  const timespec deadline{deadline_ns / 1'000'000'000, deadline_ns % 1'000'000'000};
  // Returns early only for a signal handler.
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, nullptr) != 0) continue;
}

Pace::Pace(bool enabled, double factor, std::int64_t poll_ns, std::function<void()> poll)
    : enabled_(enabled), factor_(factor), poll_ns_(poll_ns), poll_(std::move(poll)) {}

void Pace::Finish(double duration_ns) {
  if (poll_) poll_();
  if (!enabled_) return;
  deadline_ns_ += static_cast<std::int64_t>(duration_ns * factor_);
  for (std::int64_t now = NowNs(); poll_ && deadline_ns_ - now > poll_ns_; now = NowNs()) {
    SleepUntil(now + poll_ns_);
    poll_();
  }
  SleepUntil(deadline_ns_);
}

void Pace::FinishFixed(double duration_ns) {
  if (!enabled_) return;
  deadline_ns_ += static_cast<std::int64_t>(duration_ns);
  SleepUntil(deadline_ns_);
}

void Pace::Delay(double duration_ns) {
  if (duration_ns <= 0) return;
  if (!enabled_) deadline_ns_ = NowNs();
  deadline_ns_ += static_cast<std::int64_t>(duration_ns);
  SleepUntil(deadline_ns_);
}

}  // namespace lockstep::example
