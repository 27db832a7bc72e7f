#pragma once
// Finds from the times at which the data of a collective had reached each host that the network of a host is slow,
// without a recording of the network itself.

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/context.h"
#include "analysis/replayed/message_rates.h"
#include "analysis/rules/network.h"

namespace lockstep::analysis {

// What lateness that runs around the hosts, each a little earlier than the one before it, says of a ring's links.
enum class RingLinks : std::uint8_t {
  kNone,    // No ring.
  kInto,    // The one into the latest host is slow.
  kAround,  // Those to and from the latest host are.
  kEither,  // One of these.
};

// Hosts that have the data of collectives late, as far as the times show at which these had reached each: the network
// of one of them is slow, or that of a host that sends to them, which itself can have everything early.
struct SlowNetwork {
  bool SurelyRing() const { return ring != RingLinks::kNone && all.size() >= rules::kLinkRingHosts; }

  std::vector<std::size_t> hosts;  // Indices into `all`, the latest first.
  bool first = false;              // It has the data long before all others, which get them from it too slowly.
  RingLinks ring = RingLinks::kNone;
  std::optional<std::size_t> from;  // In a ring: the host before the one that has the data last.
  std::vector<std::uint32_t> all;   // Texts of ranks.node.
  std::vector<std::int32_t> ranks;  // The ranks of `hosts` that leave late.
  // Medians of the time from the last arrival until the last rank on these hosts had left.
  std::int64_t late_ns = 0, others_ns = 0;
  double late_rate = 0, others_rate = 0;  // Bus bandwidth, bytes per second.
  // What the slow network moves at least and at most, bytes per second; 0: not known.
  double least_rate = 0, most_rate = 0;
  std::uint8_t kind = 0;    // CollectiveKind of the collectives compared ..
  std::uint64_t bytes = 0;  // .. and their size.
  // How many were compared, and in how many of these the hosts were later than the others (in a ring: than the one
  // before) by more than the clocks' resolution.
  std::int64_t instances = 0, last = 0;
  double p_value = 1;  // The probability of at least as many by chance.
  // Per unit: how much longer the hosts that the data reach first waited for these, over all collectives, ns.
  std::vector<std::int64_t> behind_ns;
};

// Evaluates the collectives of at least three hosts. Returns nothing if no host differs: of fewer than rules::kFewest
// collectives, in fewer than nine of ten, or by less than three tenths of the time that the transfer takes on the
// first; or if it may be any of more than half of the hosts.
std::optional<SlowNetwork> FindSlowNetwork(const Context& context);

// Collectives that some hosts have left long before others, whichever these are.
struct UnlikeHosts {
  std::uint8_t kind = 0;    // CollectiveKind of those whose ends differ most ..
  std::uint64_t bytes = 0;  // .. and their size.
  std::int64_t instances = 0, unlike = 0;
  // Medians: from the first host's end to the last one's; the sum of these per unit.
  std::int64_t spread_ns = 0, behind_ns = 0;
};

// Nothing of fewer than rules::kFewest instances, or if fewer than nine of ten differ by a fifth of the transfer.
// What differs need not be slow: a host that only sends slowly leaves first, as the root of a tree does on a healthy
// network.
std::optional<UnlikeHosts> FindUnlikeHosts(const Context& context);

// Both kinds of evidence of one slow network, each if it is worth 1 % of the step. The evidence of collectives is
// dropped if a straggler is on such a host, or if messages show a slow link that neither begins nor ends there.
struct SlowLink {
  std::optional<SlowNetwork> collectives;
  std::optional<SlowMessages> messages;
  bool any() const { return collectives || messages; }
};
SlowLink FindSlowLink(const Context& context, const Analysis& analysis);

}  // namespace lockstep::analysis
