#pragma once
// When the other half of each point-to-point message was posted. The timeline keeps sums per pair of ranks only; code
// that needs each message calls this.

#include <cstdint>
#include <map>
#include <vector>

#include "core/result.h"
#include "merge/timeline/timeline.h"

namespace lockstep::merge {

// Rank -> per row of its p2p: cluster time at which the partner posted or entered;
// kNoTime without one. Reads the small tables of all ranks, and keeps 8 bytes per message.
using P2pPartners = std::map<std::int32_t, std::vector<std::int64_t>>;
Result<P2pPartners> FindP2pPartners(const Timeline& timeline, unsigned jobs);

}  // namespace lockstep::merge
