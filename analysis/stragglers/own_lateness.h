#pragma once
// Computes how much of a rank's lateness it added itself, and how much came from before: a rank that left an operation
// late, because its data arrived later, arrives late at the next one without having worked longer than the others.

#include <cstdint>
#include <vector>

#include "analysis/context.h"

namespace lockstep::analysis {

// The time that a rank has for its own work, since the beginning of the time axis: not in collectives and messages, nor
// asleep until collectives of another thread have ended.
class OwnTime {
 public:
  // Cluster time.
  explicit OwnTime(IntervalSet communicating);
  // Own time before this moment, up to a constant.
  std::int64_t Before(std::int64_t cluster_ns) const;

 private:
  IntervalSet communicating_;
  std::vector<std::int64_t> total_;  // The length of the intervals before each, and of all.
};

// Per unit, ns, over the collectives at which the rank arrived late. Both are sums over the same collectives, so that
// each lateness counts equally often on both sides.
struct OwnLateness {
  std::vector<std::int64_t> late_ns;      // Arrival minus the lower median arrival.
  std::vector<std::int64_t> own_ns;       // The part of it for which the rank worked longer than its peers.
  std::vector<std::int64_t> own_most_ns;  // The largest such part in any one of the unit's collectives.
  std::int64_t compared = 0;              // The number of arrivals for which the two could be separated.
};

// Compares the rank at `position` with up to nine ranks that are in a collective with it. Between an event of a
// communicator (an arrival at a collective, or its end) and the next arrival, the rank's own time beyond the lower
// median of its peers' adds to its own lateness. Between the last arrival at a collective and its end this begins at
// zero again, because the others have waited for every rank that was late until then. An end for which the others do
// not wait (they arrive at the next collective before it) is not such an event. The own part never exceeds the
// lateness. So lateness caused by transfers that end later on this rank, or by messages, never counts. Reads the files
// of these ranks; for ranks whose files cannot be read nothing is `compared`.
OwnLateness OwnLatenessOf(const Context& context, std::size_t position, const std::vector<std::size_t>& suspects);

}  // namespace lockstep::analysis
