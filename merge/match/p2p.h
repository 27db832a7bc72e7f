#pragma once
// Sends and receives of one message, matched by (communicator, source,
// destination, tag, seq), and how many each rank sent to each other one.

#include <cstdint>
#include <vector>

#include "merge/match/collectives.h"

namespace lockstep::merge {

struct MatchedP2p {
  // [rank as given][row of its p2p]: cluster time at which the other half of the
  // message was posted or entered, or at which its rank came to move it (p2p_progress.h); kNoTime without one.
  std::vector<std::vector<std::int64_t>> partner_begin_ns;
  // The same: partner's position in `ranks` as given, kNone unknown or without a file.
  std::vector<std::vector<std::uint32_t>> partner;
  // Messages, bytes and what was not matched, per pair, by source, then destination.
  schema::TlP2pPairs pairs;
  // Of receives whose own numbers are not those of their sends.
  schema::TlMessageNumbers numbers;
  std::uint64_t matched = 0, unmatched = 0;
  std::uint64_t unplaced = 0;  // Operations whose partner's world rank is not known: in no pair.
  std::vector<RunLoss> losses;
};

MatchedP2p MatchP2p(const std::vector<MatchRank>& ranks, unsigned jobs);

}  // namespace lockstep::merge
