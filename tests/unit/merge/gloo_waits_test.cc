// Who waits for whom in collectives that gloo carries.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/schema_enums.h"
#include "fixture.h"
#include "merge/match/awaited.h"
#include "rank_builder.h"

namespace lockstep::test {
namespace {

using Kind = CollectiveKind;

std::set<std::uint32_t> AllBut(std::uint32_t rank, std::uint32_t members) {
  std::set<std::uint32_t> others;
  for (std::uint32_t other = 0; other < members; ++other)
    if (other != rank) others.insert(other);
  return others;
}

std::set<std::uint32_t> PeersOf(const merge::Exchange& exchange, std::uint32_t rank) {
  merge::PeerSets sets;
  merge::FindPeers(exchange, sets);
  if (sets.of[rank] == merge::PeerSets::kNone) return AllBut(rank, exchange.members);
  std::set<std::uint32_t> peers;
  for (std::uint32_t set = sets.of[rank]; set != merge::PeerSets::kNone; set = sets.also[set]) {
    EXPECT_TRUE(sets.also[set] == merge::PeerSets::kNone || sets.also[set] < set);
    for (const std::uint32_t peer : sets.Own(set)) EXPECT_TRUE(peers.insert(peer).second) << "twice";
  }
  return peers;
}

// With whom a member exchanges something and when, as gloo/broadcast.cc goes through its rounds: a member of round i
// has received before it sends. Who has handed its data over to all of its peers waited for them, and for whoever its
// own data came through.
std::set<std::uint32_t> PeersByRounds(std::uint32_t rank, std::uint32_t root, std::uint32_t members) {
  std::vector<std::set<std::uint32_t>> waits_for(members);
  std::vector<bool> has(members, false);
  has[root] = true;
  for (std::uint32_t bit = 1; bit < members; bit *= 2) {
    const std::vector<bool> had = has;
    for (std::uint32_t place = 0; place < bit && place + bit < members; ++place) {
      const std::uint32_t from = (place + root) % members, to = (place + bit + root) % members;
      EXPECT_TRUE(had[from]);
      has[to] = true;
      waits_for[from].insert(to);
      waits_for[to].insert(from);
    }
  }
  // Data passed through the ancestors, who had to come; the children of these need not have.
  std::set<std::uint32_t> all = waits_for[rank];
  for (std::uint32_t place = (rank + members - root) % members; place != 0;) {
    std::uint32_t bit = 1;
    while (bit * 2 <= place) bit *= 2;
    place -= bit;
    all.insert((place + root) % members);
  }
  return all;
}

TEST(GlooWaits, ABroadcastIsABinomialTree) {
  for (std::uint32_t members = 2; members <= 17; ++members)
    for (std::uint32_t root = 0; root < members; ++root)
      for (std::uint32_t rank = 0; rank < members; ++rank) {
        const merge::Exchange exchange{
            .kind = Kind::kBroadcast, .gloo = true, .members = members, .root = static_cast<std::int32_t>(root)};
        EXPECT_EQ(PeersOf(exchange, rank), PeersByRounds(rank, root, members)) << members << " " << root << " " << rank;
      }
}

// gloo/reduce.cc, step by step: what each rank posts and waits for. A send is over when its receiver has posted, too.
class Ring {
 public:
  Ring(std::uint32_t members, std::uint32_t root, std::uint64_t bytes, std::uint64_t element_bytes)
      : members_(members), root_(root), bytes_(static_cast<std::int64_t>(bytes)) {
    const auto up = [](std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; };
    const std::uint64_t half = up(bytes, members * 2) / (members * 2),
                        largest = (1 << 20) / element_bytes * element_bytes;
    segment_ = up(std::min(half, largest), element_bytes);
    segments_ = up(std::max<std::uint64_t>(up(bytes, segment_) / segment_, members * 2), members);
  }

  // When each rank leaves, all of them having come at 0 except `late`, which came at 1.
  std::vector<int> Ends(std::uint32_t late) {
    std::vector<std::vector<Step>> programs;
    for (std::uint32_t rank = 0; rank < members_; ++rank) programs.push_back(ProgramOf(rank));
    std::vector<int> now(members_, 0);
    now[late] = 1;
    std::map<Message, int> sent, received;
    std::vector<std::size_t> at(members_, 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t rank = 0; rank < members_; ++rank)
        for (; at[rank] < programs[rank].size(); ++at[rank], moved = true) {
          const auto& [kind, message] = programs[rank][at[rank]];
          if (kind == kSend) sent[message] = now[rank];
          if (kind == kReceive) received[message] = now[rank];
          if (kind != kWait) continue;
          if (!sent.contains(message) || !received.contains(message)) break;
          now[rank] = std::max({now[rank], sent[message], received[message]});
        }
    }
    for (std::uint32_t rank = 0; rank < members_; ++rank) EXPECT_EQ(at[rank], programs[rank].size()) << "it hangs";
    return now;
  }

 private:
  // From, to, the iteration (the last one is the way to the root).
  using Message = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;
  enum Kind { kSend, kReceive, kWait };
  using Step = std::pair<Kind, Message>;

  std::vector<Step> ProgramOf(std::uint32_t rank) const {
    std::vector<Step> program;
    const std::uint64_t per_rank = segments_ / members_;
    const std::uint32_t above = (rank + 1) % members_, below = (rank + members_ - 1) % members_;
    const auto filled = [&](std::uint64_t segment) {
      return static_cast<std::int64_t>(segment % segments_ * segment_) < bytes_;
    };
    for (std::uint64_t i = 0; i < segments_; ++i) {
      if (i >= 2 && filled((rank + 2) * per_rank + i - 2)) program.push_back({kWait, {above, rank, i - 2}});
      if (i >= 2 && filled((rank + 1) * per_rank + i - 2)) program.push_back({kWait, {rank, below, i - 2}});
      if (i + 2 >= segments_) continue;
      if (filled((rank + 2) * per_rank + i)) program.push_back({kReceive, {above, rank, i}});
      if (filled((rank + 1) * per_rank + i)) program.push_back({kSend, {rank, below, i}});
    }
    if (rank != root_ && filled(rank * per_rank)) {
      program.push_back({kSend, {rank, root_, segments_}});
      program.push_back({kWait, {rank, root_, segments_}});
    }
    for (const Kind kind : {kReceive, kWait})
      for (std::uint32_t other = 0; rank == root_ && other < members_; ++other)
        if (other != rank && filled(other * per_rank)) program.push_back({kind, {other, rank, segments_}});
    return program;
  }

  const std::uint32_t members_, root_;
  const std::int64_t bytes_;
  std::uint64_t segment_, segments_;
};

TEST(GlooWaits, AReduceOfFewElementsWaitsForWhomItsDataPasses) {
  for (const std::uint64_t element_bytes : {4, 8})
    for (std::uint64_t members = 3; members <= 7; ++members)
      for (const std::uint64_t elements : {1ul, 2ul, 3ul, 5ul, 2 * members - 1, 2 * members, 1000ul, (9ul << 20) / 4}) {
        const std::uint64_t bytes = elements * element_bytes;
        for (std::uint32_t root = 0; root < members; ++root) {
          const merge::Exchange exchange{.kind = Kind::kReduce,
                                         .gloo = true,
                                         .members = static_cast<std::uint32_t>(members),
                                         .root = static_cast<std::int32_t>(root),
                                         .bytes = bytes,
                                         .element_bytes = element_bytes};
          const bool some = merge::RuleOf(exchange) == merge::WaitRule::kPeers;
          std::vector<std::set<std::uint32_t>> truth(members);
          Ring ring(exchange.members, root, bytes, element_bytes);
          for (std::uint32_t late = 0; late < members; ++late) {
            const std::vector<int> ends = ring.Ends(late);
            for (std::uint32_t rank = 0; rank < members; ++rank)
              if (rank != late && ends[rank] > 0) truth[rank].insert(late);
          }
          for (std::uint32_t rank = 0; rank < members; ++rank) {
            const std::set<std::uint32_t> peers = some ? PeersOf(exchange, rank) : AllBut(rank, exchange.members);
            std::set<std::uint32_t> possible = peers;
            const merge::Numbers more = some ? merge::PossiblePeers(exchange, rank) : merge::Numbers{};
            for (std::uint32_t peer = more.begin; peer < more.end; ++peer) possible.insert(peer);
            const auto what = ::testing::Message() << elements << " x " << element_bytes << " of " << members
                                                   << ", root " << root << ", rank " << rank;
            EXPECT_TRUE(std::includes(truth[rank].begin(), truth[rank].end(), peers.begin(), peers.end())) << what;
            EXPECT_TRUE(std::includes(possible.begin(), possible.end(), truth[rank].begin(), truth[rank].end()))
                << what;
          }
        }
      }
}

Merged OnGloo(Kind kind, const std::vector<std::int64_t>& arrivals, std::int64_t end, std::int32_t root) {
  Merged m(static_cast<std::int32_t>(arrivals.size()));
  for (std::size_t r = 0; r < arrivals.size(); ++r) {
    RankBuilder& rank = m[static_cast<std::int32_t>(r)];
    rank.Collective(kind, arrivals[r], end, 64, root);
    std::fill(rank.t.comms.kind.begin(), rank.t.comms.kind.end(), std::uint8_t{schema::CommKind::kTorchGroup});
  }
  m.Run();
  return m;
}

// PyTorch does not tell whether the members of an all-to-all have counts of their own.
TEST(GlooWaits, MembersOfAnAllToAllMayMoveDifferentAmounts) {
  for (const bool torch : {true, false}) {
    Merged m(2);
    m[0].Collective(Kind::kAllToAll, 0, 30, 32);
    m[1].Collective(Kind::kAllToAll, 10, 30, 36);
    for (const std::int32_t r : {0, 1})
      if (torch)
        std::fill(m[r].t.comms.kind.begin(), m[r].t.comms.kind.end(), std::uint8_t{schema::CommKind::kTorchGroup});
    m.Run();
    EXPECT_EQ(m.matched.mismatched, torch ? 0u : 1u);
    EXPECT_EQ(m.collectives().uneven[0], torch ? 1 : 0);
    if (torch) {
      EXPECT_EQ(m.members().wait_ns[0], 10);
    }
  }
  // Equal ones are even, and of other kinds different sizes are a mistake there, too.
  Merged even(2);
  Merged reduced(2);
  for (const std::int32_t r : {0, 1}) {
    even[r].Collective(Kind::kAllToAll, 10 * r, 30, 32);
    reduced[r].Collective(Kind::kAllReduce, 10 * r, 30, static_cast<std::uint64_t>(32 + r));
    for (Merged* m : {&even, &reduced})
      std::fill((*m)[r].t.comms.kind.begin(), (*m)[r].t.comms.kind.end(), std::uint8_t{schema::CommKind::kTorchGroup});
  }
  even.Run();
  reduced.Run();
  EXPECT_EQ(even.collectives().uneven[0], 0);
  EXPECT_EQ(reduced.matched.mismatched, 1u);
}

// With 512 members, lists of all for whom each waits would have 130,000 items and more.
TEST(GlooWaits, PeersTakeNoMemoryForEachPair) {
  for (const Kind kind : {Kind::kBroadcast, Kind::kGather, Kind::kReduce})
    for (const std::uint64_t bytes : {8, 256 * 8}) {
      merge::PeerSets sets;
      merge::FindPeers({.kind = kind, .gloo = true, .members = 512, .root = 3, .bytes = bytes, .element_bytes = 8},
                       sets);
      EXPECT_LT(sets.members.size() + sets.size(), 512u * 20);
    }
}

TEST(GlooWaits, TheLatestOfThoseForWhomAMemberWaits) {
  const std::vector<std::int64_t> arrival{50, 10, 90, 20, 30, 70};
  for (const Kind kind : {Kind::kBroadcast, Kind::kGather, Kind::kReduce})
    for (std::int32_t root = 0; root < 6; ++root)
      for (const std::uint64_t elements : {1, 3, 12}) {
        const merge::Exchange exchange{
            .kind = kind, .gloo = true, .members = 6, .root = root, .bytes = elements * 8, .element_bytes = 8};
        if (merge::RuleOf(exchange) != merge::WaitRule::kPeers) continue;
        merge::PeerSets sets;
        merge::FindPeers(exchange, sets);
        for (std::uint32_t unknown = 0; unknown <= 6; ++unknown) {
          std::vector<std::int64_t> known = arrival;
          if (unknown < 6) known[unknown] = schema::kNoTime;
          const merge::LatestOfPeers latest(sets, known);
          for (std::uint32_t rank = 0; rank < 6; ++rank) {
            if (rank == unknown) continue;
            const std::set<std::uint32_t> peers = PeersOf(exchange, rank);
            std::int64_t expected = schema::kNoTime;
            for (const std::uint32_t peer : peers) expected = std::max(expected, known[peer]);
            if (peers.contains(unknown)) expected = schema::kNoTime;
            EXPECT_EQ(latest.Of(rank), expected) << root << " " << rank << " " << unknown;
          }
        }
      }
}

// Of four with root 0: 1 and 2 are the root's, 3 is of 1.
TEST(GlooWaits, ALateLeafHoldsUpWhoSendsToIt) {
  const Merged m = OnGloo(Kind::kBroadcast, {10, 20, 30, 500}, 510, 0);
  EXPECT_EQ(m.members().wait_ns, (std::vector<std::int64_t>{20, 480, 0, 0}));
  EXPECT_EQ(m.collectives().last_rank[0], 3);
  EXPECT_EQ(m.collectives().charge_ns[0], 470);
  EXPECT_EQ(m.checks.violations, 0u);
}

TEST(GlooWaits, ALateReceiverHoldsUpTheRootOfTwo) {
  const Merged m = OnGloo(Kind::kBroadcast, {10, 500}, 510, 0);
  EXPECT_EQ(m.members().wait_ns, (std::vector<std::int64_t>{490, 0}));
  EXPECT_EQ(m.collectives().splits[0], 1);
  EXPECT_EQ(m.collectives().last_rank[0], 1);
}

TEST(GlooWaits, AReduceIsARing) {
  const Merged m = OnGloo(Kind::kReduce, {10, 300, 20}, 400, 0);
  EXPECT_EQ(m.members().wait_ns, (std::vector<std::int64_t>{290, 0, 280}));
  EXPECT_EQ(m.collectives().splits[0], 1);
}

TEST(GlooWaits, AScatterIsBetweenTheRootAndEach) {
  const Merged m = OnGloo(Kind::kScatter, {10, 300, 200}, 400, 2);
  EXPECT_EQ(m.members().wait_ns, (std::vector<std::int64_t>{190, 0, 100}));
  EXPECT_EQ(m.collectives().last_rank[0], 1);
}

TEST(GlooWaits, OfAnUnknownRootNothingIsSaid) {
  const Merged m = OnGloo(Kind::kBroadcast, {10, 20, 500}, 510, -1);
  EXPECT_EQ(m.members().wait_ns, (std::vector<std::int64_t>{-1, -1, -1}));
  EXPECT_EQ(m.collectives().last_rank[0], -1);
}

}  // namespace
}  // namespace lockstep::test
