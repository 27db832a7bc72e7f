#pragma once
// The condition for reporting a rate.

#include <cstddef>

namespace lockstep::analysis {

// With fewer certain instances the bandwidth is left out: one slow or one lucky transfer would be half of it.
inline constexpr std::size_t kLeastInstancesOfRate = 5;

}  // namespace lockstep::analysis
