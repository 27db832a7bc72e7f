#pragma once
// Point-to-point calls that waited for their partner: late senders and late
// receivers as Scalasca defines them (docs/definitions.md), each waiting call
// counted once.

#include <cstdint>
#include <vector>

#include "core/interval.h"
#include "merge/match/p2p.h"

namespace lockstep::merge {

// When one rank waited, on its own clock.
struct RankP2pWaits {
  IntervalSet late_sender;
  IntervalSet late_receiver;
};

// Fills the waits of `matched.pairs`; `window` in cluster time limits them to calls
// that began in it ({0, 0}: all). One entry per rank as given; its sets hold all
// waits, whatever the window.
std::vector<RankP2pWaits> FindP2pWaits(const std::vector<MatchRank>& ranks, MatchedP2p& matched, Interval window,
                                       unsigned jobs);

}  // namespace lockstep::merge
