#pragma once
// What a member of a collective with counts of its own (allgatherv, alltoallv, ...) exchanges with the others. No rank
// waits for a member that gives nothing, and a member that takes nothing waits for no rank.

#include <cstdint>

namespace lockstep {

// Flags of MpiRecord beside those in core/record.h.
inline constexpr std::uint8_t kMpiGivesNothing = 32, kMpiTakesNothing = 64;

// Bits of collectives.uneven; 0: counts are the same on all members.
inline constexpr std::uint8_t kUneven = 1, kGivesNothing = 2, kTakesNothing = 4;

constexpr std::uint8_t UnevenBits(bool uneven, bool gives_nothing, bool takes_nothing) {
  return static_cast<std::uint8_t>((uneven ? kUneven : 0) | (gives_nothing ? kGivesNothing : 0) |
                                   (takes_nothing ? kTakesNothing : 0));
}

// Bits of collective_ranks.exempt.
inline constexpr std::uint8_t kWaitsForNobody = 1, kAwaitedByNobody = 2;

}  // namespace lockstep
