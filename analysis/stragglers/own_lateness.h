#pragma once
// How much of a rank's lateness it added itself, and how much it brought along: a rank that left an operation late,
// because its data came later, arrives late at the next one without having done more than the others.

#include <cstdint>
#include <vector>

#include "analysis/context.h"

namespace lockstep::analysis {

// A rank of whose lateness less than this share is its own passes on what it brought along.
inline constexpr double kOwnShare = 0.5;

// Time that a rank spends as it likes, since the beginning of all times: not in collectives and messages, nor asleep
// until collectives of another thread have ended.
class OwnTime {
 public:
  // Cluster time.
  explicit OwnTime(IntervalSet communicating);
  // Own time before this moment, up to a constant.
  std::int64_t Before(std::int64_t cluster_ns) const;

 private:
  IntervalSet communicating_;
  std::vector<std::int64_t> total_;  // Length of the members before each, and of all.
};

// Per unit, ns, over the collectives that the rank came late to. Both are sums over the same collectives, so that each
// lateness counts as often on one side as on the other.
struct OwnLateness {
  std::vector<std::int64_t> late_ns;  // Arrival minus the lower median arrival.
  std::vector<std::int64_t> own_ns;   // Of that, what the rank did longer than its peers.
  std::int64_t compared = 0;          // Arrivals that could be told apart like this.
};

// Of the rank at `position`, against up to nine ranks that are in a collective with it. From one event of a
// communicator (arrival at a collective, end of it) to the next arrival, the rank's own time beyond the lower median of
// its peers' adds to the lateness that is its own; from when all were at a collective to its end it begins anew,
// because whoever was late until then was waited for. An end that the others do not wait for (they arrive at the next
// collective before it) is none to them. What is its own is never more than how late it is. So what was
// brought along, by transfers that end later here or by messages, never counts. Reads the files of these ranks; of
// ranks whose files cannot be read nothing is `compared`.
OwnLateness OwnLatenessOf(const Context& context, std::size_t position, const std::vector<std::size_t>& suspects);

}  // namespace lockstep::analysis
