#pragma once
// Sums of times and clock errors, either of which may be unbounded.

#include <cstdint>
#include <limits>

namespace lockstep::merge {

inline constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

// kForever if the sum overflows.
inline std::int64_t Sum(std::int64_t a, std::int64_t b) {
  std::int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? kForever : sum;
}

}  // namespace lockstep::merge
