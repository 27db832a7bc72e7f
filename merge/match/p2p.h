#pragma once
// Sends and receives of one message, matched by (communicator, source,
// destination, tag, seq).

#include <cstdint>
#include <vector>

#include "merge/match/collectives.h"

namespace lockstep {

struct MatchedP2p {
  // [rank as given][row of its p2p]: cluster time at which the matched send was
  // posted; kNoTime for sends and for receives without one.
  std::vector<std::vector<std::int64_t>> send_post_ns;
  std::uint64_t matched = 0, unmatched = 0;
  std::vector<RunLoss> losses;
};

MatchedP2p MatchP2p(const std::vector<MatchRank>& ranks, unsigned jobs);

}  // namespace lockstep
