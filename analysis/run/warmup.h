#pragma once
// First recorded steps that are longer than all later ones, although the program did not flag them: caches, autotuning,
// lazy loading, the allocator's first rounds.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::analysis {

// How many of the first values are such. `own_ns`: each step's length without waiting for other ranks, in order.
// 0 where later steps are as long again and again (bursts), or where too many are (a change, not a warm-up).
std::size_t CountWarmup(const std::vector<std::int64_t>& own_ns);

}  // namespace lockstep::analysis
