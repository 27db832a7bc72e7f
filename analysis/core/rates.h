#pragma once
// When a rate may be given.

#include <cstddef>

namespace lockstep::analysis {

// Of fewer instances whose end is certain a bandwidth is left out: one slow or one lucky transfer would be half of it.
inline constexpr std::size_t kLeastInstancesOfRate = 5;

}  // namespace lockstep::analysis
