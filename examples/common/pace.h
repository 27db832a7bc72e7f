#pragma once
// Fixed wall times for pieces of work, by sleeping up to absolute deadlines.

#include <cstdint>
#include <functional>

namespace lockstep::example {

// CLOCK_MONOTONIC, ns.
std::int64_t NowNs();
// Lets sleeps end within microseconds of their deadline (the default slack is 50 us). Per thread.
void SleepPrecisely();
// Sleeps until the clock reads `deadline_ns`; at once if that has passed.
void SleepUntil(std::int64_t deadline_ns);

// A chain of deadlines: each piece of work ends `duration` after the end of the
// one before it, whatever the arithmetic inside took, so that a late wake-up
// does not accumulate.
class Pace {
 public:
  // `factor` stretches every piece; `poll` is called about every `poll_ns` while
  // waiting, and once per piece. A disabled pace does not wait, only polls.
  Pace(bool enabled, double factor, std::int64_t poll_ns, std::function<void()> poll);

  // Another factor from now on.
  void Stretch(double factor) { factor_ = factor; }
  void Begin() { deadline_ns_ = NowNs(); }
  void Finish(double duration_ns);
  // The same without stretching and polling: time that no rank's slowness touches.
  void FinishFixed(double duration_ns);
  // A pause that takes place in any case, on top of everything else.
  void Delay(double duration_ns);

 private:
  bool enabled_;
  double factor_;
  std::int64_t poll_ns_, deadline_ns_ = 0;
  std::function<void()> poll_;
};

}  // namespace lockstep::example
