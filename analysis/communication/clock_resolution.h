#pragma once
// Computes which differences between times of two ranks are larger than the clocks' errors.

#include <cstdint>

namespace lockstep::analysis {

// A time counts as later than another rank's if the difference exceeds this multiple of the sum of the two ranks' clock
// errors, which is three times one rank's error.
inline constexpr double kResolution = 1.5;

// The smallest difference that shows which of two times is later; `error_ns` is the sum of the members' clock errors.
// Without a bound it is the largest number there is.
constexpr std::int64_t ResolutionNs(std::int64_t error_ns) {
  return error_ns > INT64_MAX / 4 ? INT64_MAX : static_cast<std::int64_t>(kResolution * static_cast<double>(error_ns));
}

}  // namespace lockstep::analysis
