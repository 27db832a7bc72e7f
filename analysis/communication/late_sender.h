#pragma once
// Whose messages a rank waits for: which of several senders decides how long, and for whom that one waits itself.

#include <cstdint>
#include <vector>

#include "analysis/context.h"
#include "analysis/core/model.h"

namespace lockstep::analysis {

// The pair whose waits of one kind cost `rank` most; null without waits. `waits`: which of a pair's ranks waits.
const P2pPair* HeaviestOf(const std::vector<P2pPair>& pairs, std::int32_t rank, std::int32_t P2pPair::*waits,
                          std::int64_t P2pPair::*cost);

struct LateSender {
  const P2pPair* pair = nullptr;    // From the sender that decides, or the one waited for longest.
  std::vector<const P2pPair*> all;  // From every rank that was late, `pair` among them.
  bool decides = true;              // False: several are late, and none of them is last as a rule.
  // Ranks that wait for each other, each for the one behind it: the waiting one, its sender, whom that waits for, ...
  std::vector<std::int32_t> chain;
  std::int64_t on_path_ns = 0;         // Per step, of `pair`'s sender; 0: not known.
  std::int64_t others_on_path_ns = 0;  // Of all other late senders.
};

// What `waiting` waits for; `pair` is null without late senders. `costs_ns`: what each rank waits for late senders, by
// position. A rank that receives from several of them in a row waits until the last has sent, whichever of the receives
// that took the time: the last one is on the critical path across ranks, those before it are not.
LateSender LateSenderOf(const Context& context, const Analysis& analysis, const std::vector<P2pPair>& pairs,
                        const std::vector<std::int64_t>& costs_ns, std::int32_t waiting);

}  // namespace lockstep::analysis
