#pragma once
// Computes which differences between times of two ranks are larger than the clocks' errors.

#include <cstdint>

#include "analysis/rules/network.h"

namespace lockstep::analysis {

// The smallest difference that shows which of two times is later; `error_ns` is the sum of the members' clock errors.
// Without a bound it is the largest number there is.
inline std::int64_t ResolutionNs(std::int64_t error_ns) {
  return error_ns > INT64_MAX / 4
             ? INT64_MAX
             : static_cast<std::int64_t>(rules::kClockResolutionTimes * static_cast<double>(error_ns));
}

}  // namespace lockstep::analysis
