#pragma once
// Clocks and chance: what a rank's clock would have read, and the one generator
// that all jitter and noise come from.

#include <cstdint>

#include "make_run/spec.h"

namespace lockstep::make_run {

// The clock a rank would have read at a true time.
class TrueClock {
 public:
  TrueClock(const Spec& spec, std::int32_t rank);
  std::int64_t Show(std::int64_t true_ns) const;

 private:
  ClockSpec clock_;
  std::int64_t epoch_ns_;
};

// splitmix64 chain over the words; README.md "Times".
std::uint64_t Random(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d);

}  // namespace lockstep::make_run
