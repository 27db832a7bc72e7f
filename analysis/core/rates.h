#pragma once
// The condition for reporting a rate.

#include <cstddef>

namespace lockstep::analysis {

// With fewer instances whose end is certain the bandwidth is left out, because one slow or one lucky transfer would
// determine half of it.
inline constexpr std::size_t kLeastInstancesOfRate = 5;

}  // namespace lockstep::analysis
