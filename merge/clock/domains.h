#pragma once
// Groups ranks that share a clock.

#include <cstdint>
#include <utility>
#include <vector>

#include "merge/clock/align.h"
#include "merge/clock/clock_map.h"
#include "merge/clock/corridor.h"
#include "merge/clock/fit.h"

namespace lockstep::merge {

// Ranks on one clock, and their fitted map.
struct Domain {
  std::vector<const AlignRank*> ranks;  // By rank.
  std::int64_t begin_ns = 0, end_ns = -1;
  ClockMap map;
  bool mapped = false;
  std::vector<OffsetKnot> knots;  // The knots to which the map was fitted.
  std::uint64_t wide = 0, jumps = 0;
  std::vector<InstanceBounds> instances;
  bool imported = true;    // All its ranks are imported.
  bool by_ends = false;    // Fitted to the ends of collectives.
  bool unrelated = false;  // Not related to the reference, only to the others of its component.

  std::int32_t leader() const { return ranks.front()->rank; }
};

// Domains are ordered by their first rank. `ranks`: by rank. The second result are the ranks whose files name their
// neighbours' clock domain although their own check contradicts that: each is a domain of its own. They are in order.
std::pair<std::vector<Domain>, std::vector<std::int32_t>> MakeDomains(const std::vector<const AlignRank*>& ranks);

}  // namespace lockstep::merge
