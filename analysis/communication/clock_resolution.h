#pragma once
// Which differences between times of two ranks the clocks can tell.

#include <cstdint>

namespace lockstep::analysis {

// A time is later than another rank's if it is so by this many times the sum of two ranks' clock errors: three times
// one rank's.
inline constexpr double kResolution = 1.5;

// From which difference on one is later than the other; of members with clock errors of this sum. Without a bound: the
// largest number there is.
constexpr std::int64_t ResolutionNs(std::int64_t error_ns) {
  return error_ns > INT64_MAX / 4 ? INT64_MAX : static_cast<std::int64_t>(kResolution * static_cast<double>(error_ns));
}

}  // namespace lockstep::analysis
