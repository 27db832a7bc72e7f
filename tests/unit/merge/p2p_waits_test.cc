#include "merge/match/p2p_waits.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "rank_builder.h"

namespace lockstep::test {
namespace {

// Ranks on one true clock; each with an error bound.
struct World {
  explicit World(std::int32_t size, std::int64_t error_ns = 0) : error_ns_(error_ns) {
    for (std::int32_t r = 0; r < size; ++r) ranks.push_back(std::make_unique<RankBuilder>(r, size));
  }
  void Run(Interval window = {0, 0}) {
    schema::Clock clock;
    for (const auto& rank : ranks)
      clock.Append({.rank = rank->rank(), .local_ns = 0, .offset_ns = 0, .base_error_ns = error_ns_});
    for (const auto& rank : ranks) clocks_.emplace_back(clock, rank->rank());
    std::vector<merge::MatchRank> match;
    for (std::size_t r = 0; r < ranks.size(); ++r)
      match.push_back({ranks[r]->rank(), &ranks[r]->t, &clocks_[r], {0, 1'000'000}});
    p2p = merge::MatchP2p(match, 2);
    waits = merge::FindP2pWaits(match, p2p, window, 2);
  }
  // A half whose call waits from `wait` on.
  void Half(std::int32_t rank, bool receive, std::int32_t peer, std::uint64_t seq, std::int64_t post, std::int64_t wait,
            std::int64_t end, std::int32_t tag = 0, std::uint64_t bytes = 8) {
    schema::P2p& t = ranks[static_cast<std::size_t>(rank)]->t.p2p;
    t.Append({.comm = 0,
              .direction = static_cast<std::uint8_t>(receive),
              .mode = static_cast<std::uint8_t>(post != wait),
              .peer = peer,
              .peer_world_rank = peer,
              .tag = tag,
              .seq = seq,
              .begin_ns = post,
              .post_end_ns = post,
              .last_incomplete_ns = schema::kNoTime,
              .wait_begin_ns = wait,
              .end_ns = end,
              .bytes = bytes,
              .call = schema::kNone});
  }
  schema::TlP2pPairs::Row Pair(std::int32_t source, std::int32_t destination) const {
    for (std::size_t i = 0; i < p2p.pairs.rows(); ++i)
      if (p2p.pairs.source_rank[i] == source && p2p.pairs.destination_rank[i] == destination) return p2p.pairs.Get(i);
    ADD_FAILURE() << "no pair " << source << " -> " << destination;
    return {};
  }

  std::vector<std::unique_ptr<RankBuilder>> ranks;
  merge::MatchedP2p p2p;
  std::vector<merge::RankP2pWaits> waits;

 private:
  std::int64_t error_ns_;
  std::vector<merge::ClockMap> clocks_;
};

TEST(P2pWaits, LateSenderIsUntilTheSendBegins) {
  World w(2);
  w.Half(0, true, 1, 0, 100, 100, 500);
  w.Half(1, false, 0, 0, 400, 400, 450);
  w.Run();
  EXPECT_EQ(w.Pair(1, 0).late_sender_ns, 300);
  EXPECT_EQ(w.Pair(1, 0).late_sender_count, 1u);
  EXPECT_EQ(w.Pair(1, 0).late_receiver_count, 0u);
  ASSERT_EQ(w.waits[0].waits.size(), 1u);
  const merge::P2pWait& wait = w.waits[0].waits[0];
  EXPECT_EQ(wait.at, (Interval{100, 400}));
  EXPECT_EQ(wait.partner, 1);
  EXPECT_EQ(wait.row, 0u);
  EXPECT_TRUE(wait.receive);
  EXPECT_EQ(w.waits[0].Of(true), IntervalSet({{100, 400}}));
  EXPECT_TRUE(w.waits[0].Of(false).empty());
  EXPECT_TRUE(w.waits[1].waits.empty());
}

TEST(P2pWaits, ReceiveThatEndsBeforeTheSendIsClamped) {
  World w(2);  // A clock violation, or a wrong match: never more than the call itself.
  w.Half(0, true, 1, 0, 100, 100, 250);
  w.Half(1, false, 0, 0, 400, 400, 450);
  w.Run();
  EXPECT_EQ(w.Pair(1, 0).late_sender_ns, 150);
}

TEST(P2pWaits, BufferedSendWaitsForNobody) {
  World w(2);
  w.Half(0, false, 1, 0, 100, 100, 110);
  w.Half(0, false, 1, 1, 200, 200, 600);
  w.Half(1, true, 0, 0, 300, 300, 310);
  w.Half(1, true, 0, 1, 500, 500, 600);
  w.Run();
  EXPECT_EQ(w.Pair(0, 1).late_receiver_ns, 300);
  EXPECT_EQ(w.Pair(0, 1).late_receiver_count, 1u);
}

TEST(P2pWaits, OneWaitForManyCountsOnceForTheLatest) {
  World w(3);
  w.Half(0, true, 1, 0, 50, 100, 900);
  w.Half(0, true, 2, 0, 60, 100, 900);
  w.Half(0, false, 2, 0, 70, 100, 900);
  w.Half(1, false, 0, 0, 300, 300, 310);
  w.Half(2, false, 0, 0, 700, 700, 710);
  w.Half(2, true, 0, 0, 850, 850, 900);
  w.Run();
  EXPECT_EQ(w.Pair(1, 0).late_sender_count, 0u);
  EXPECT_EQ(w.Pair(2, 0).late_sender_ns, 600);
  // What follows the late sender is the late receiver's.
  EXPECT_EQ(w.Pair(0, 2).late_receiver_ns, 150);
}

TEST(P2pWaits, WaitIsWhereTheCompletionIsAsked) {
  World w(2);
  w.Half(0, true, 1, 0, 100, 600, 650);  // Posted early, asked for after the send began: no wait.
  w.Half(1, false, 0, 0, 400, 400, 450);
  w.Run();
  EXPECT_EQ(w.Pair(1, 0).late_sender_ns, 0);
}

TEST(P2pWaits, WrongOrderIsAnEarlierMessageReceivedLater) {
  World w(3);
  w.Half(0, true, 2, 0, 100, 100, 520);
  w.Half(0, true, 1, 0, 530, 530, 540);
  w.Half(1, false, 0, 0, 90, 90, 95);
  w.Half(2, false, 0, 0, 500, 500, 510);
  w.Run();
  EXPECT_EQ(w.Pair(2, 0).late_sender_ns, 400);
  EXPECT_EQ(w.Pair(2, 0).wrong_order_ns, 400);
  World in_order(3);
  in_order.Half(0, true, 2, 0, 100, 100, 520);
  in_order.Half(0, true, 1, 0, 530, 530, 540);
  in_order.Half(1, false, 0, 0, 525, 525, 527);
  in_order.Half(2, false, 0, 0, 500, 500, 510);
  in_order.Run();
  EXPECT_EQ(in_order.Pair(2, 0).wrong_order_ns, 0);
}

TEST(P2pWaits, BelowTheClocksErrorNothingIsClaimed) {
  World w(2, 50);  // Two ranks of 50 ns each: 200 ns cannot be told.
  w.Half(0, true, 1, 0, 100, 100, 500);
  w.Half(1, false, 0, 0, 300, 300, 350);
  w.Half(0, true, 1, 1, 600, 600, 900);
  w.Half(1, false, 0, 1, 801, 801, 850);
  w.Run();
  EXPECT_EQ(w.Pair(1, 0).below_resolution, 1u);
  EXPECT_EQ(w.Pair(1, 0).late_sender_ns, 201);
  EXPECT_EQ(w.Pair(1, 0).late_sender_count, 1u);
}

TEST(P2pWaits, WindowLimitsWaitsAndNotTheMatrix) {
  World w(2);
  for (std::uint64_t i = 0; i < 4; ++i) {
    const auto t = static_cast<std::int64_t>(1000 * i);
    w.Half(0, true, 1, i, t + 100, t + 100, t + 500, 0, 10);
    w.Half(1, false, 0, i, t + 400, t + 400, t + 450, 0, 10);
  }
  w.Run({1000, 3000});
  EXPECT_EQ(w.Pair(1, 0).late_sender_ns, 600);
  EXPECT_EQ(w.Pair(1, 0).messages, 4u);
  EXPECT_EQ(w.Pair(1, 0).bytes, 40u);
  EXPECT_EQ(w.Pair(1, 0).matched, 4u);
}

TEST(P2pWaits, SelfAndMissingPartners) {
  World w(3);
  w.Half(0, false, 0, 0, 100, 100, 110);
  w.Half(0, true, 0, 0, 120, 120, 130);
  w.Half(0, true, 1, 5, 200, 200, 210);   // Its send is not there.
  w.Half(0, false, 7, 0, 300, 300, 310);  // A rank without a file.
  w.Run();
  EXPECT_EQ(w.Pair(0, 0).matched, 1u);
  EXPECT_EQ(w.Pair(0, 0).late_sender_ns, 0);
  EXPECT_EQ(w.Pair(1, 0).messages, 1u);  // Known from the receiver only.
  EXPECT_EQ(w.Pair(1, 0).unmatched, 1u);
  EXPECT_EQ(w.Pair(0, 7).messages, 1u);
  EXPECT_EQ(w.Pair(0, 7).unmatched, 0u);
}

TEST(P2pWaits, InterCommunicatorsPartnersAreFoundOnTheOtherSide) {
  World w(3);
  // Rank 0 on one side, ranks 1 and 2 on the other.
  const auto comm = [](std::int32_t rank, std::int32_t first, std::uint32_t size) {
    schema::Comms::Row row;
    row.comm = 1, row.global_id = 99, row.size = size, row.rank = rank, row.kind = 1;
    row.first_world_rank = first, row.stride = 1, row.name = schema::kNone, row.end_ns = schema::kNoTime;
    return row;
  };
  w.ranks[0]->t.comms.Append(comm(0, 0, 1));
  w.ranks[1]->t.comms.Append(comm(0, 1, 2));
  w.ranks[2]->t.comms.Append(comm(1, 1, 2));
  w.Half(0, true, 1, 0, 100, 100, 500);  // From member 1 of the others: rank 2.
  w.Half(2, false, 0, 0, 400, 400, 450);
  for (const std::size_t r : {std::size_t{0}, std::size_t{2}}) {
    w.ranks[r]->t.p2p.comm[0] = 1;
    w.ranks[r]->t.p2p.peer_world_rank[0] = -1;
  }
  w.Run();
  EXPECT_EQ(w.Pair(2, 0).late_sender_ns, 300);
  EXPECT_EQ(w.p2p.unplaced, 0u);
}

}  // namespace
}  // namespace lockstep::test
