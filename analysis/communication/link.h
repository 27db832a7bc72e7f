#pragma once
// When the data of a collective had reached each host: what a slow network of one of them shows, where the network
// itself is not recorded.

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/context.h"
#include "analysis/replayed/message_rates.h"

namespace lockstep::analysis {

// Hosts that the data of collectives reach later than the others, every time.
struct SlowNetwork {
  std::vector<std::size_t> hosts;   // Places in `all`, the latest first.
  std::optional<std::size_t> from;  // Where the data go around a ring: the host before the one that has them latest.
  std::vector<std::uint32_t> all;   // Texts of ranks.node.
  std::vector<std::int32_t> ranks;  // That leave late: of `hosts`.
  std::int64_t late_ns = 0, others_ns = 0;  // Medians: from when all were there to when the last rank there had left.
  double late_rate = 0, others_rate = 0;    // Bus bandwidth, bytes per second.
  std::uint8_t kind = 0;                    // CollectiveKind of these ..
  std::uint64_t bytes = 0;                  // .. and their size.
  std::int64_t instances = 0, last = 0;     // Compared; in which these hosts were later than the others (in a ring:
                                            // than the one before) beyond the clocks' resolution.
  double p_value = 1;                       // Of as many by chance.
  // Per unit: how much longer the hosts that the data reach first had to wait for these, of all collectives, ns.
  std::vector<std::int64_t> behind_ns;
};

// What the collectives of at least three hosts show; nothing if no host stands out: in fewer than kLeastInstances of
// them, in fewer than nine of ten, or by less than a fifth of what the transfer takes on the others.
std::optional<SlowNetwork> FindSlowNetwork(const Context& context);

// Both kinds of evidence of one slow network, as far as each is worth 1 % of the step. Of collectives: unless a
// straggler is on such a host, and, where messages show a way, if that way begins or ends there.
struct SlowLink {
  std::optional<SlowNetwork> collectives;
  std::optional<SlowMessages> messages;
  bool any() const { return collectives || messages; }
};
SlowLink FindSlowLink(const Context& context, const Analysis& analysis);

}  // namespace lockstep::analysis
