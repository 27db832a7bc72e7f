#pragma once
// Clocks other than ours that CUPTI had, and how their times become ticks. One thread.

#include <cstdint>

#include "runtime/cupti/cupti_clock.h"
#include "runtime/cupti/decode.h"

namespace lockstep::cupti {

class ForeignClocks {
 public:
  // The one that CUPTI has now, some times a second at least: only that one may be asked.
  void Follow(TimestampCallback clock, double ticks_per_ns);
  // Of a buffer that was handed out at `out_ticks`. Where its clock is not known, or was set since, a scale on
  // which no time is to be believed.
  TimeScale Scale(TimestampCallback clock, std::uint64_t out_ticks) const;

 private:
  struct Known {
    TimestampCallback clock;
    ClockPair first, middle, last;
    std::uint64_t jumped_ticks;
    double ticks_per_unit;
    bool measured;
  };
  static constexpr int kMost = 8;
  Known known_[kMost] = {};
  int used_ = 0;
};

}  // namespace lockstep::cupti
