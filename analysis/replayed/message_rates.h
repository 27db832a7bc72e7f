#pragma once
// How fast point-to-point messages cross from host to host, pair of hosts beside pair of hosts: what a slow way between
// two of them shows, where the network itself is not recorded. Messages within a host are another matter (shared
// memory), and compared with nothing here.

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/context.h"
#include "analysis/core/model.h"

namespace lockstep::analysis {

struct SlowMessages {
  // One: the ways of this host are slow; two: the way between them.
  std::vector<std::uint32_t> hosts;  // Texts of ranks.node.
  // What is sent and received; only what the first host sends; only what the one host receives.
  enum class Direction : std::uint8_t { kBoth, kFrom, kTo } direction = Direction::kBoth;
  bool beside_the_way_back = false;         // There are no other hosts: compared with messages in the other direction.
  std::uint64_t bytes = 0;                  // Of the class in which most is lost: the median message there, ...
  std::int64_t slow_ns = 0, others_ns = 0;  // ... what it takes, and a message of the others.
  double slow_rate = 0, others_rate = 0;    // Bytes per second.
  std::int64_t slow = 0, compared = 0;      // Messages of this way that were compared; that are slow.
  bool several_ways = false;                // All that one call received counts as one message.
  double p_value = 1;
  std::int64_t behind_ns =
      0;  // Per step, of the rank whose messages lose most: what they take beyond the others' rate.
  // By message of the replayed run: what it would take at the others' rate, ns; -1: it is of another way.
  std::vector<std::int64_t> ordinary_ns;
  Evidence rates;  // Of every pair of hosts and class: how many, median, rate.
};

// What the messages of the replayed steps show, nothing if no way stands out or nothing can be compared. A message took
// at least what passed since sender and receiver were in calls that move it, and at most what passed since it can have
// begun (message_transfers.h). Where a call waits for several messages, all that it receives counts as one; it is of a
// way if one of them came that way. A call that sends on a way may have waited for that, and says nothing of it.
// One is slow beside others if it takes at least twice what their median takes at most, and has half of their rate;
// others are those of the same size (to a factor of two) beside as many transfers at the same time, in calls with as
// many messages. A way is slow if nine of ten of its messages are, five at least, more than the share of slow ones
// among the others explains (binomial, p < 0.01 over all that was asked). Of one way, the ways between two hosts, what
// one host sends or receives, and both, the first is told that alone leaves no more than a tenth of the others slow
// (beyond what any of these leaves), less than any other of its kind, and is not part of a slow one whose rest is slow
// as well. Only what is worth 1 % of the step.
std::optional<SlowMessages> FindSlowMessages(const Context& context, const Summary& summary);

// Of a run on two hosts: whose messages in one direction take 1.2 times as long as those back, found in the same way,
// whatever that is worth. `slow` are the messages of the first direction.
std::optional<SlowMessages> FindUnlikeDirections(const Context& context);

}  // namespace lockstep::analysis
