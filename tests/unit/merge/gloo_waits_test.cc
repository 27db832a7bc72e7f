// Who waits for whom in collectives that gloo carries.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "core/schema_enums.h"
#include "fixture.h"
#include "merge/match/awaited.h"
#include "rank_builder.h"

namespace lockstep::test {
namespace {

using Kind = CollectiveKind;

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
        std::set<std::uint32_t> peers;
        merge::ForEachGlooPeer(Kind::kBroadcast, rank, root, members, [&](std::uint32_t peer) { peers.insert(peer); });
        EXPECT_EQ(peers, PeersByRounds(rank, root, members)) << members << " " << root << " " << rank;
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
