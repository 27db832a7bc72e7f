#pragma once
// When the other half of each point-to-point message was posted, and who waited for it. The timeline keeps sums per
// pair of ranks only; code that needs each message calls this.

#include <cstdint>
#include <map>
#include <vector>

#include "core/result.h"
#include "merge/match/p2p_waits.h"
#include "merge/timeline/timeline.h"

namespace lockstep::merge {

struct RankP2pPartners {
  std::vector<std::int64_t> begin_ns;  // Per row of its p2p: cluster time at which the partner posted or entered.
                                       // kNoTime without one.
  RankP2pWaits waits;
};
// By rank. Reads the small tables of all ranks, and keeps 8 bytes per message and 32 per wait.
using P2pPartners = std::map<std::int32_t, RankP2pPartners>;
Result<P2pPartners> FindP2pPartners(const Timeline& timeline, unsigned jobs);

}  // namespace lockstep::merge
