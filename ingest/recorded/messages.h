#pragma once
// Which message of one rank is which of the other. Both ends of a message number it alike: MPI keeps messages of one
// communicator, sender, receiver and tag in order.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "hang/progress.h"
#include "ingest/recorded/rank_view.h"

namespace lockstep::recorded {

// By communicator's global_id and rank: the messages that are open, and those of the other end that they may be. Their
// sequences are equal where it is one message. What may have ended already is marked as not waited for where its rank
// waits for others beside it. A message that a rank waits in for somebody unknown is added to its `elsewhere`.
using Messages = std::map<std::pair<std::uint64_t, std::int32_t>, std::vector<hang::Operation>>;
Messages MatchMessages(std::vector<RankView>& views);

}  // namespace lockstep::recorded
