#pragma once
// One rank's position in one group, from its dump.

#include <cstdint>
#include <vector>

#include "hang/progress.h"
#include "ingest/flight_recorder/dump.h"

namespace lockstep::flight_recorder {

// What one dump says of one group.
struct MemberSource {
  const Dump* dump = nullptr;
  const DumpGroup* group = nullptr;
  std::int32_t rank = -1;
  std::vector<const Entry*> entries;
};

// The status of a group counts collectives or messages, whichever came last, and with gloo operations that have no
// entry. So it is believed where it counts one kind only and agrees with the entries of all ranks.
struct Trust {
  bool collectives = false, messages = false;
  bool numbered = false;  // Messages have a number that both ends count alike.
};
Trust TrustOf(const std::vector<const MemberSource*>& members, std::size_t size);

// `order`: the ranks by their place in the group; empty: not known, and messages have no peer.
hang::Member MemberOf(const MemberSource& source, const Trust& trust, const std::vector<std::int32_t>& order);

}  // namespace lockstep::flight_recorder
