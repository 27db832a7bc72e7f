#pragma once
// Who is charged with the waiting in a collective (docs/definitions.md): each stretch of a rank's wait in equal parts
// those that it waits for and that had not arrived.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "merge/timeline/timeline.h"

namespace lockstep::merge {

// What is charged in place of a rank.
inline constexpr std::int32_t kClocks = -1;                     // Arrivals that the clocks cannot tell apart.
inline constexpr std::int32_t kNotRecorded = -2;                // Members without a file may have come later.
inline constexpr std::int32_t kNobodyKnown = kNotRecorded - 1;  // Who was waited for is not known.

// Of all collectives of a run: 12 bytes per member. Thread: any, at once; `timeline` outlives it.
class Charges {
 public:
  Charges(const Timeline& timeline, unsigned jobs);

  // f(rank or one of the above, ns) of a member's wait: they sum to it. `member`: row of collective_ranks.
  void EachOf(std::size_t member, const std::function<void(std::int32_t, double)>& f) const;
  // The same, summed over all members that wait in a collective.
  void EachOfAll(std::size_t collective, const std::function<void(std::int32_t, double)>& f) const;
  // What one member is charged with of another one's wait.
  double Of(std::size_t member, std::size_t charged) const;

 private:
  // The members that others wait for, by arrival.
  class Awaited;
  Awaited In(std::size_t collective) const;

  const Timeline& timeline_;
  // Of each collective from its first member on: rows of collective_ranks; and what a rank that waits from the first
  // arrival until this one charges to each that comes later.
  std::vector<std::uint32_t> order_;
  std::vector<double> share_ns_;
  std::vector<std::uint32_t> awaited_;  // How many, per collective.
};

}  // namespace lockstep::merge
