#pragma once
// Which member of a collective waits for which, by its kind. No other code decides this.
//
//   kind                                             waits                     for
//   all-reduce, all-gather, reduce-scatter,          who takes something       every other that gives something
//     all-to-all, barrier
//   broadcast, scatter                               who takes something       the root
//   reduce, gather                                   the root                  every other that gives something
//   scan, neighbourhood, others                      not known
//
// Who gives or takes nothing is known of collectives with counts of their own (core/uneven.h). Which pairs of an
// all-to-all exchange something is not.
//
// gloo (PyTorch) hands no data over before its receiver has come, so senders wait for receivers too. Its reduce is a
// ring that all pass data on through, its broadcast a binomial tree, its scatter and gather are between the root and
// each (gloo/reduce.cc, broadcast.cc, scatter.cc, gather.cc, of 2018 to 2025).

#include <bit>
#include <cstdint>

#include "core/collective.h"
#include "core/uneven.h"

namespace lockstep::merge {

struct Part {
  // Whether it waits for some other member, and whether some other member waits for it.
  bool waits = false, awaited = false;
};

// `uneven`: of the member's row.
constexpr Part PartOf(CollectiveKind kind, bool root, std::uint8_t uneven) {
  const bool gives = (uneven & kGivesNothing) == 0, takes = (uneven & kTakesNothing) == 0;
  if (Splits(kind)) return {takes, gives};
  if (RootSends(kind)) return {!root && takes, root};
  if (RootReceives(kind)) return {root, !root && gives};
  return {};
}

// The rule that applies.
enum class WaitRule : std::uint8_t { kByKind, kAllForAll, kGlooPeers };

constexpr WaitRule RuleOf(CollectiveKind kind, bool gloo, std::uint32_t members) {
  if (!gloo || !(RootSends(kind) || RootReceives(kind))) return WaitRule::kByKind;
  return SplitsOnGloo(kind, members) ? WaitRule::kAllForAll : WaitRule::kGlooPeers;
}

// Of WaitRule::kGlooPeers: calls f(member's number) for each that member `rank` waits for.
template <typename F>
void ForEachGlooPeer(CollectiveKind kind, std::uint32_t rank, std::uint32_t root, std::uint32_t members, F&& f) {
  const std::uint32_t place = (rank + members - root) % members;  // The root has position 0.
  const auto number = [&](std::uint32_t of_place) { return (of_place + root) % members; };
  if (kind != CollectiveKind::kBroadcast) {
    if (place != 0) return f(root);
    for (std::uint32_t other = 1; other < members; ++other) f(number(other));
    return;
  }
  // Data comes from the position without the highest bit, and goes on to those with one more bit above it.
  for (std::uint32_t above = place; above != 0;) {
    above ^= std::bit_floor(above);
    f(number(above));
  }
  for (std::uint64_t bit = place == 0 ? 1 : std::uint64_t{std::bit_floor(place)} * 2; place + bit < members; bit *= 2)
    f(number(static_cast<std::uint32_t>(place + bit)));
}

}  // namespace lockstep::merge
