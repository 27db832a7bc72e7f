#pragma once
// Point-to-point messages between ranks that are replayed: a call that receives cannot return before the send has
// begun, and one that sends with a handshake cannot return before the receive was posted, and either may need the other
// rank to be in a call meanwhile.

#include <cstdint>
#include <vector>

#include "analysis/replay/graph/recorded_run.h"
#include "analysis/replay/graph/stretches.h"
#include "core/rank_tables.h"

namespace lockstep::replay {

// One rank's half of a message. Cluster time.
struct MessageHalf {
  std::uint64_t comm = 0, seq = 0;
  std::int32_t source = -1, destination = -1, tag = 0;  // World ranks.
  std::uint64_t bytes = 0;
  bool send = false;
  // The post; the entry and return of the call that completes it.
  std::int64_t begin_ns = 0, completing_ns = 0, end_ns = 0;
  // Over gloo nothing tells which call completes it: whichever it ends in. `completing_ns` is not known then.
  bool in_library = false;
};

// Returns the messages of the training thread that completed and whose partner is known.
std::vector<MessageHalf> MessageHalves(const schema::RankTables& tables, const merge::ClockMap& clock,
                                       std::int32_t world_rank, std::uint32_t thread);

// Pairs the halves and enters them in the calls of both ranks (`offers`, `awaits`, `after_ns`). A send that ended
// before its receive was posted was buffered and does not wait. [rank] in both; `ranks` are their world ranks,
// ascending. Returns the messages of which both calls are replayed; the ends of message i (Stretch::offers, awaits) are
// 2 i and 2 i + 1.
std::vector<RunMessage> JoinMessages(const std::vector<std::int32_t>& ranks,
                                     std::vector<std::vector<MessageHalf>> halves,
                                     std::vector<RankStretches>& stretches);

}  // namespace lockstep::replay
