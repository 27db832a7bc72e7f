#pragma once
// Converts times of other clocks that CUPTI had to ticks. One thread.

#include <cstdint>

#include "runtime/cupti/cupti_clock.h"
#include "runtime/cupti/decode.h"

namespace lockstep::cupti {

class ForeignClocks {
 public:
  // The clock that CUPTI has now. Called at least several times a second; only this clock may be read.
  void Follow(TimestampCallback clock, double ticks_per_ns);
  // The scale of a buffer that was handed out at `out_ticks`. If its clock is not known, or was set since, the scale
  // accepts no time.
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
