#pragma once
// Point-to-point calls that waited for their partner: late senders and late
// receivers as Scalasca defines them (docs/definitions.md), each waiting call
// counted once.

#include <cstdint>
#include <vector>

#include "core/interval.h"
#include "merge/match/p2p.h"

namespace lockstep::merge {

// A call that waited for the other half of a message.
struct P2pWait {
  Interval at;           // Rank clock.
  std::uint32_t row;     // Of the rank's p2p: the message it waited for.
  std::int32_t partner;  // World rank whose half came late.
  bool receive;          // True: a late sender; false: a late receiver.
};

// Those of one rank, by begin.
struct RankP2pWaits {
  std::vector<P2pWait> waits;
  // When it waited for late senders (`receive`) or late receivers.
  IntervalSet Of(bool receive) const;
};

// A part of a message's wait in which the rank itself waited.
struct MessageWait {
  Interval at;        // Rank clock.
  std::uint32_t row;  // Of its p2p.
};
// The waits that count in the rank's breakdown, by begin: those of kernels and of the training thread, and of other
// threads what lies in `awaited`, while the training thread waits for them. A thread that only listens delays nobody.
std::vector<MessageWait> MessageWaits(const RankP2pWaits& waits, const schema::P2p& p2p, std::uint32_t training,
                                      const IntervalSet& awaited);

// Fills the waits of `matched.pairs`; `window` in cluster time limits them to calls
// that began in it ({0, 0}: all). One entry per rank as given, with all its
// waits, whatever the window.
std::vector<RankP2pWaits> FindP2pWaits(const std::vector<MatchRank>& ranks, MatchedP2p& matched, Interval window,
                                       unsigned jobs);

}  // namespace lockstep::merge
