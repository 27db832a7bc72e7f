#pragma once
// Which member of a collective waits for which. No other code decides this: matching asks it for waits and violations,
// the replay for who a change of one rank reaches.
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
// gloo (PyTorch) hands no data over before its receiver has come: a send is only announced until the receiver has
// announced that it receives (gloo/transport/tcp/pair.cc, send and handleRemotePendingRecv: "sends cannot execute until
// the remote side is ready to receive"). So senders wait for receivers too:
//
//   broadcast         a member waits for those that its data comes through (a binomial tree: its parent, the parent's
//                     parent, up to the root) and for those that it hands it on to (its children), but for no other: a
//                     late leaf delays its parent alone, which posts all its sends before it waits for one of them
//   scatter, gather   the root waits for all, the others for the root
//   reduce            a ring: a chunk for each member (core/gloo_reduce.h) starts at the number below its owner's and
//                     comes to it, number by number downwards and around the end, by way of all others; then the
//                     owners send theirs to the root. Where every member owns a chunk, all wait for all. A member
//                     without one waits for those that its data comes through, and for the one below it, which it
//                     hands it on to. Where there are several chunks, the one below may be busy
//                     handing on an earlier one, and so forth: for whom that makes a member wait besides is not known
//
// gloo/broadcast.cc, scatter.cc, gather.cc, reduce.cc; the same from 2018 to 2025.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/collective.h"
#include "core/data_type_name.h"
#include "core/gloo_reduce.h"
#include "core/schema.h"
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

// The rule that applies. kPeers: each member waits for some of the others (FindPeers).
enum class WaitRule : std::uint8_t { kByKind, kAllForAll, kPeers };

// What decides it, of one collective.
struct Exchange {
  CollectiveKind kind = CollectiveKind::kNone;
  bool gloo = false;
  std::uint32_t members = 0;        // Of its group.
  std::int32_t root = -1;           // Its number in the group; -1: there is none, or it is not known.
  std::uint64_t bytes = 0;          // What a member gives.
  std::uint64_t element_bytes = 0;  // 0: not known.
  constexpr bool RootIsKnown() const { return root >= 0 && static_cast<std::uint32_t>(root) < members; }
  constexpr std::uint32_t Chunks() const { return GlooReduceChunks(members, bytes, element_bytes); }
  bool operator==(const Exchange&) const = default;
};

// As a member recorded it. `bytes`: the most that a member gives.
inline Exchange ExchangeOf(const schema::Collectives& rows, std::size_t row, bool torch_group, std::uint32_t members,
                           std::uint64_t bytes) {
  return {.kind = static_cast<CollectiveKind>(rows.kind[row]),
          .gloo = torch_group && rows.mode[row] != schema::Code(CollectiveMode::kGpu),
          .members = members,
          .root = rows.root[row],
          .bytes = bytes,
          .element_bytes = row < rows.dtype.size() ? TextOfDataType(rows.dtype[row]).bytes : 0u};
}

constexpr WaitRule RuleOf(const Exchange& exchange) {
  if (!exchange.gloo || !(RootSends(exchange.kind) || RootReceives(exchange.kind))) return WaitRule::kByKind;
  if (exchange.members == 2) return WaitRule::kAllForAll;
  // Of a reduction whose size is not known that all wait for all is a bound.
  if (exchange.kind == CollectiveKind::kReduce)
    return exchange.Chunks() == 0 || exchange.Chunks() == exchange.members ? WaitRule::kAllForAll : WaitRule::kPeers;
  return WaitRule::kPeers;
}

// For whom each member of a collective waits, as sets of members' numbers that share their members: a list for each
// member of a reduce would make that many times as many. Sets may be used again by FindPeers.
struct PeerSets {
  static constexpr std::uint32_t kNone = 0xffffffffu;
  std::vector<std::uint32_t> first{0}, members;  // Of set s: members[first[s]] up to members[first[s + 1]],
  std::vector<std::uint32_t> also;               // and those of set also[s], which is one before it; kNone: no others.
  std::vector<std::uint32_t> of;                 // [member's number]: its set; kNone: all others.

  std::size_t size() const { return also.size(); }
  void Clear(std::uint32_t group_size) {
    first.assign(1, 0);
    members.clear();
    also.clear();
    of.assign(group_size, kNone);
  }
  // Ends the set to which members were added.
  std::uint32_t Close(std::uint32_t with = kNone) {
    first.push_back(static_cast<std::uint32_t>(members.size()));
    also.push_back(with);
    return static_cast<std::uint32_t>(also.size() - 1);
  }
  std::span<const std::uint32_t> Own(std::size_t set) const {
    return std::span(members).subspan(first[set], first[set + 1] - first[set]);
  }
};

// Of WaitRule::kPeers with a known root: for whom each member certainly waits. O(members), of a broadcast times their
// logarithm.
inline void FindPeers(const Exchange& exchange, PeerSets& sets) {
  const std::uint32_t members = exchange.members, root = static_cast<std::uint32_t>(exchange.root);
  sets.Clear(members);
  if (exchange.kind == CollectiveKind::kBroadcast) {
    for (std::uint32_t number = 0; number < members; ++number) {
      const std::uint32_t place = (number + members - root) % members;  // The root has position 0.
      const auto at = [&](std::uint32_t of_place) { sets.members.push_back((of_place + root) % members); };
      // Data comes from the position without the highest bit, and goes on to those with one more bit above it.
      for (std::uint32_t above = place; above != 0;) {
        above ^= std::bit_floor(above);
        at(above);
      }
      for (std::uint64_t bit = place == 0 ? 1 : std::uint64_t{std::bit_floor(place)} * 2; place + bit < members;
           bit *= 2)
        at(static_cast<std::uint32_t>(place + bit));
      sets.of[number] = sets.Close();
    }
    return;
  }
  if (exchange.kind != CollectiveKind::kReduce) {
    sets.members.push_back(root);
    sets.of.assign(members, sets.Close());
    sets.of[root] = PeerSets::kNone;
    return;
  }
  // The last chunk comes the longest way: from the number below its owner's down to 0, then around the end of the ring.
  const std::uint32_t chunks = exchange.Chunks();
  for (std::uint32_t above = 0; above + 1 < chunks; ++above) sets.members.push_back(above);
  std::uint32_t passed = sets.Close();
  for (std::uint32_t number = members; number-- > chunks;) {
    if (number != root) {
      sets.members.push_back(number - 1);
      sets.of[number] = sets.Close(passed);
    }
    sets.members.push_back(number);
    passed = sets.Close(passed);
  }
}

// When the last of those came for whom a member waits. O(members) for all of them together.
class LatestOfPeers {
 public:
  // `arrival_ns`: by member's number; kNoTime: not known. Both must outlive this.
  LatestOfPeers(const PeerSets& sets, const std::vector<std::int64_t>& arrival_ns)
      : of_(sets.of), arrival_ns_(arrival_ns) {
    for (std::uint32_t set = 0; set < sets.size(); ++set) {
      Latest latest = sets.also[set] == PeerSets::kNone ? Latest{} : in_[sets.also[set]];
      for (const std::uint32_t number : sets.Own(set)) latest.Add(arrival_ns[number]);
      in_.push_back(latest);
    }
    for (const std::int64_t ns : arrival_ns) all_.Add(ns);
  }
  // Of a member that has arrived. kNoTime: it is not known of all of them.
  std::int64_t Of(std::uint32_t number) const {
    const Latest& latest = of_[number] == PeerSets::kNone ? all_ : in_[of_[number]];
    if (!latest.known) return schema::kNoTime;
    return of_[number] == PeerSets::kNone && arrival_ns_[number] == all_.ns ? all_.second_ns : latest.ns;
  }

 private:
  struct Latest {
    std::int64_t ns = schema::kNoTime, second_ns = schema::kNoTime;
    bool known = true;
    void Add(std::int64_t one_ns) {
      known &= one_ns != schema::kNoTime;
      second_ns = std::max(second_ns, std::min(ns, one_ns));
      ns = std::max(ns, one_ns);
    }
  };
  const std::vector<std::uint32_t>& of_;
  const std::vector<std::int64_t>& arrival_ns_;
  std::vector<Latest> in_;  // By set.
  Latest all_;
};

struct Numbers {
  std::uint32_t begin = 0, end = 0;
  constexpr bool empty() const { return begin >= end; }
};

// The others that a member may wait for as well. Where there are some, FindPeers' are a lower bound.
constexpr Numbers PossiblePeers(const Exchange& exchange, std::uint32_t number) {
  if (exchange.kind != CollectiveKind::kReduce || number == static_cast<std::uint32_t>(exchange.root)) return {};
  const std::uint32_t chunks = exchange.Chunks();
  if (chunks < 2 || number <= chunks) return {};
  return {chunks - 1, number - 1};
}

}  // namespace lockstep::merge
