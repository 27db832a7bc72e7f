// Matching: instances, waits and transfers, last arrivers, what is missing.

#include <gtest/gtest.h>

#include "core/uneven.h"
#include "fixture.h"

namespace lockstep::test {
namespace {

using Kind = CollectiveKind;

TEST(Match, SplitsWaitFromTransfer) {
  Merged m(3);
  m[0].Collective(Kind::kAllReduce, 100, 260);
  m[1].Collective(Kind::kAllReduce, 200, 250);
  m[2].Collective(Kind::kAllReduce, 150, 270);
  m.Run();
  ASSERT_EQ(m.collectives().rows(), 1u);
  EXPECT_EQ(m.members().wait_ns, (std::vector<std::int64_t>{100, 0, 50}));
  EXPECT_EQ(m.members().transfer_ns, (std::vector<std::int64_t>{60, 50, 70}));
  EXPECT_EQ(m.collectives().transfer_ns[0], 60);
  EXPECT_EQ(m.collectives().wait_ns[0], 50);
  EXPECT_EQ(m.collectives().last_rank[0], 1);
  EXPECT_EQ(m.collectives().charge_ns[0], 50);
  EXPECT_EQ(m.collectives().end_ns[0], 270);
  EXPECT_EQ(m.matched.unmatched, 0u);
}

TEST(Match, TransferIsTheLowerMedianAndWaitTheMean) {
  Merged m(2);
  m[0].Collective(Kind::kAllReduce, 0, 30);
  m[1].Collective(Kind::kAllReduce, 10, 50);
  m.Run();
  EXPECT_EQ(m.collectives().transfer_ns[0], 20);
  EXPECT_EQ(m.collectives().wait_ns[0], (10 + 0) / 2) << "one of two waits: nobody in the middle does";
}

TEST(Match, MarginWithinClockErrorIsATie) {
  for (const std::int64_t margin : {40, 41}) {
    Merged m(2);
    m.error_ns = {3, 7};  // Tie up to 2 * (3 + 7).
    m[0].Collective(Kind::kBarrier, 1000 - margin + 20, 1100, 0);
    m[1].Collective(Kind::kBarrier, 1000, 1100, 0);
    m.Run();
    EXPECT_EQ(m.collectives().last_rank[0], margin - 20 > 20 ? 1 : -1) << margin;
    EXPECT_EQ(m.collectives().charge_ns[0], margin - 20 > 20 ? margin - 20 : 0) << margin;
    EXPECT_EQ(m.collectives().error_ns[0], 10);
  }
}

TEST(Match, ZeroBytesSynchroniseNobody) {
  Merged m(2);
  m[0].Collective(Kind::kAllReduce, 0, 10, 0);
  m[1].Collective(Kind::kAllReduce, 50, 60, 0);
  m.Run();
  EXPECT_EQ(m.collectives().splits[0], 0);
  EXPECT_EQ(m.collectives().transfer_ns[0], -1);
  EXPECT_EQ(m.collectives().last_rank[0], -1);
  EXPECT_EQ(m.checks.violations, 0u);
}

TEST(Match, FinalizeIsAWaitWithoutATransfer) {
  Merged m(2);
  m[0].Collective(Kind::kFinalize, 0, 900, 0);
  m[1].Collective(Kind::kFinalize, 500, 950, 0);
  m.Run();
  EXPECT_EQ(m.members().wait_ns, (std::vector<std::int64_t>{500, 0}));
  EXPECT_EQ(m.members().transfer_ns, (std::vector<std::int64_t>{0, 0}));
  EXPECT_EQ(m.members().end_high_ns, (std::vector<std::int64_t>{500, 500}));
  EXPECT_EQ(m.collectives().last_rank[0], 1);
  EXPECT_EQ(m.collectives().charge_ns[0], 500);
  // An MPI whose ranks do not wait for each other there.
  Merged apart(2);
  apart[0].Collective(Kind::kFinalize, 0, 400, 0);
  apart[1].Collective(Kind::kFinalize, 500, 950, 0);
  apart.Run();
  EXPECT_EQ(apart.members().wait_ns, (std::vector<std::int64_t>{-1, -1}));
  EXPECT_EQ(apart.members().end_high_ns, (std::vector<std::int64_t>{0, 500}));
  EXPECT_EQ(apart.collectives().last_rank[0], -1);
  EXPECT_EQ(apart.checks.violations, 0u);
}

TEST(Match, FencesWaitForAllWhereNobodyLeavesBeforeTheLastCame) {
  Merged m(2);
  m[0].Collective(Kind::kFence, 0, 900, 0);
  m[1].Collective(Kind::kFence, 500, 950, 0);
  m[0].Collective(Kind::kFence, 1000, 1010, 0);
  m[1].Collective(Kind::kFence, 1200, 1210, 0);
  m.Run();
  EXPECT_EQ(m.members().wait_ns, (std::vector<std::int64_t>{500, 0, -1, -1}));
  EXPECT_EQ(m.members().transfer_ns, (std::vector<std::int64_t>{400, 450, -1, -1}));
  EXPECT_EQ(m.collectives().last_rank[0], 1);
  EXPECT_EQ(m.collectives().last_rank[1], -1);
  EXPECT_EQ(m.checks.violations, 0u);
}

TEST(Match, BroadcastWaitsForTheRootOnly) {
  Merged m(3);
  m[0].Collective(Kind::kBroadcast, 10, 60, 64, 1);
  m[1].Collective(Kind::kBroadcast, 40, 45, 64, 1);
  m[2].Collective(Kind::kBroadcast, 90, 95, 64, 1);
  m.Run();
  EXPECT_EQ(m.members().wait_ns, (std::vector<std::int64_t>{30, -1, 0}));
  EXPECT_EQ(m.members().transfer_ns, (std::vector<std::int64_t>{20, -1, 5}));
  EXPECT_EQ(m.collectives().last_rank[0], -1) << "a late receiver delays nobody";
  EXPECT_EQ(m.checks.violations, 0u);
}

TEST(Match, LateRootOfABroadcastIsTheLastArriver) {
  Merged m(2);
  m[0].Collective(Kind::kBroadcast, 10, 160, 64, 1);
  m[1].Collective(Kind::kBroadcast, 140, 145, 64, 1);
  m.Run();
  EXPECT_EQ(m.collectives().last_rank[0], 1);
  EXPECT_EQ(m.collectives().charge_ns[0], 130);
}

TEST(Match, ReduceMakesOnlyTheRootWait) {
  Merged m(3);
  m[0].Collective(Kind::kReduce, 10, 100, 64, 0);
  m[1].Collective(Kind::kReduce, 20, 25, 64, 0);
  m[2].Collective(Kind::kReduce, 80, 85, 64, 0);
  m.Run();
  EXPECT_EQ(m.members().wait_ns, (std::vector<std::int64_t>{70, -1, -1}));
  EXPECT_EQ(m.members().transfer_ns, (std::vector<std::int64_t>{20, -1, -1}));
  EXPECT_EQ(m.collectives().last_rank[0], 2);
}

TEST(Match, ScanIsNotSplit) {
  Merged m(2);
  m[0].Collective(Kind::kScan, 0, 10);
  m[1].Collective(Kind::kScan, 5, 15);
  m.Run();
  EXPECT_EQ(m.members().wait_ns, (std::vector<std::int64_t>{-1, -1}));
  EXPECT_EQ(m.collectives().splits[0], 0);
}

// Who gives nothing to the others (allgatherv with a count of 0) need not come.
TEST(Match, WhoGivesNothingIsNotWaitedFor) {
  Merged m(3);
  m[0].Collective(Kind::kAllGather, 100, 160);
  m[1].Collective(Kind::kAllGather, 130, 165);
  m[2].Collective(Kind::kAllGather, 400, 410);
  for (const std::int32_t r : {0, 1, 2}) m[r].t.collectives.uneven[0] = r == 2 ? kUneven | kGivesNothing : kUneven;
  m.Run();
  EXPECT_EQ(m.checks.violations, 0u);
  EXPECT_EQ(m.members().wait_ns, (std::vector<std::int64_t>{30, 0, 0}));
  EXPECT_EQ(m.members().transfer_ns, (std::vector<std::int64_t>{30, 35, 10}));
  EXPECT_EQ(m.collectives().last_rank[0], 1) << "the last one somebody waited for";
  EXPECT_EQ(m.collectives().charge_ns[0], 30);
  EXPECT_EQ(m.collectives().last_arrival_ns[0], 130);
  EXPECT_EQ(m.members().exempt, (std::vector<std::uint8_t>{0, 0, kAwaitedByNobody}));
}

// What a replay must know: who waits for nobody and for whom nobody waits, whatever the kind.
TEST(Match, ExemptFromWaiting) {
  Merged m(2);
  for (const std::int32_t r : {0, 1}) {
    m[r].Collective(Kind::kAllReduce, 100 + r, 160);
    m[r].Collective(Kind::kAllReduce, 200 + r, 260, 0);
    m[r].Collective(Kind::kBroadcast, 300 + r, 360, 64, 0);
    m[r].Collective(Kind::kReduce, 400 + r, 460, 64, 0);
    m[r].Collective(Kind::kScan, 500 + r, 560);
  }
  m.Run();
  constexpr std::uint8_t kNeither = kWaitsForNobody | kAwaitedByNobody;
  EXPECT_EQ(m.members().exempt, (std::vector<std::uint8_t>{0, 0, kNeither, kNeither, kWaitsForNobody, kAwaitedByNobody,
                                                           kAwaitedByNobody, kWaitsForNobody, 0, 0}));
}

// A library may pass data on through it all the same: what they did since is neither known.
TEST(Match, WhoGivesNothingAndComesWhileOthersAreIn) {
  Merged m(3);
  m[0].Collective(Kind::kAllGather, 100, 460);
  m[1].Collective(Kind::kAllGather, 130, 465);
  m[2].Collective(Kind::kAllGather, 400, 470);
  for (const std::int32_t r : {0, 1, 2}) m[r].t.collectives.uneven[0] = r == 2 ? kUneven | kGivesNothing : kUneven;
  m.Run();
  EXPECT_EQ(m.members().wait_ns, (std::vector<std::int64_t>{30, 0, 0}));
  EXPECT_EQ(m.members().transfer_ns, (std::vector<std::int64_t>{-1, -1, 70}));
  EXPECT_EQ(m.terms[0].exposed_unsplit_ns, 330);
  EXPECT_EQ(m.terms[0].exposed_wait_ns, 30);
}

TEST(Match, WhoTakesNothingWaitsForNobody) {
  Merged m(3);
  m[0].Collective(Kind::kReduceScatter, 100, 110);
  m[1].Collective(Kind::kReduceScatter, 300, 320);
  m[2].Collective(Kind::kReduceScatter, 200, 330);
  for (const std::int32_t r : {0, 1, 2}) m[r].t.collectives.uneven[0] = r == 0 ? kUneven | kTakesNothing : kUneven;
  m.Run();
  EXPECT_EQ(m.checks.violations, 0u);
  EXPECT_EQ(m.members().wait_ns, (std::vector<std::int64_t>{-1, 0, 100}));
  EXPECT_EQ(m.collectives().last_rank[0], 1);
}

// A gatherv's root does not wait for who has nothing; of a scatterv who gets nothing does not wait for the root.
TEST(Match, RootedKindsWithoutData) {
  Merged m(3);
  m[0].Collective(Kind::kGather, 100, 210, 64, 0);
  m[1].Collective(Kind::kGather, 200, 205, 64, 0);
  m[2].Collective(Kind::kGather, 900, 901, 64, 0);
  m[2].t.collectives.uneven[0] = kUneven | kGivesNothing;
  m[0].Collective(Kind::kScatter, 2000, 2010, 64, 0);
  m[1].Collective(Kind::kScatter, 1500, 2020, 64, 0);
  m[2].Collective(Kind::kScatter, 1000, 1001, 64, 0);
  m[2].t.collectives.uneven[1] = kUneven | kTakesNothing;
  m.Run();
  EXPECT_EQ(m.checks.violations, 0u);
  EXPECT_EQ(m.members().wait_ns, (std::vector<std::int64_t>{100, -1, -1, -1, 500, -1}));
  EXPECT_EQ(m.collectives().last_rank[0], 1);
  EXPECT_EQ(m.collectives().charge_ns[0], 100);
  EXPECT_EQ(m.collectives().last_rank[1], 0);
  EXPECT_EQ(m.collectives().charge_ns[1], 500);
}

// Counts of alltoallv do not say which pairs exchange something: one that left before the last came did not wait.
TEST(Match, UnevenExchangesProveNoViolation) {
  Merged m(3);
  m[0].Collective(Kind::kAllToAll, 100, 150);
  m[1].Collective(Kind::kAllToAll, 300, 340);
  m[2].Collective(Kind::kAllToAll, 120, 350);
  for (const std::int32_t r : {0, 1, 2}) m[r].t.collectives.uneven[0] = kUneven;
  m.Run();
  EXPECT_EQ(m.checks.violations, 0u);
  EXPECT_EQ(m.members().wait_ns, (std::vector<std::int64_t>{-1, 0, 180}));
}

TEST(Match, OneGiverIsTheLastIfItComesLast) {
  Merged m(3);
  m[0].Collective(Kind::kAllGather, 100, 360);
  m[1].Collective(Kind::kAllGather, 120, 365);
  m[2].Collective(Kind::kAllGather, 350, 370);
  for (const std::int32_t r : {0, 1, 2}) m[r].t.collectives.uneven[0] = r == 2 ? kUneven : kUneven | kGivesNothing;
  m.Run();
  EXPECT_EQ(m.members().wait_ns, (std::vector<std::int64_t>{250, 230, 0}));
  EXPECT_EQ(m.collectives().last_rank[0], 2);
  EXPECT_EQ(m.collectives().charge_ns[0], 230);
}

TEST(Match, UnevenBytesAreNoMismatch) {
  Merged m(2);
  m[0].Collective(Kind::kAllToAll, 0, 30, 100);
  m[1].Collective(Kind::kAllToAll, 10, 30, 900);
  m[0].t.collectives.uneven[0] = m[1].t.collectives.uneven[0] = 1;
  m.Run();
  EXPECT_EQ(m.collectives().uneven[0], 1);
  EXPECT_EQ(m.collectives().mismatch[0], 0);
  EXPECT_EQ(m.collectives().bytes[0], 900u);
  EXPECT_EQ(m.collectives().transfer_ns[0], 20);
}

TEST(Match, DisagreementIsReportedAndNotSplit) {
  for (const bool kind : {true, false}) {
    Merged m(2);
    m[0].Collective(Kind::kAllReduce, 0, 30, 100);
    m[1].Collective(kind ? Kind::kBarrier : Kind::kAllReduce, 10, 30, kind ? 100 : 200);
    m.Run();
    EXPECT_EQ(m.matched.mismatched, 1u);
    EXPECT_EQ(m.collectives().mismatch[0], 1);
    EXPECT_EQ(m.collectives().splits[0], 0);
    EXPECT_EQ(m.members().wait_ns[0], -1);
  }
}

TEST(Match, OneDeletedRowIsOneUnmatched) {
  for (const std::size_t row : {0u, 4u, 9u}) {
    Merged m(4);
    for (std::int64_t i = 0; i < 10; ++i)
      for (int r = 0; r < 4; ++r) m[r].Collective(Kind::kAllReduce, 100 * i + r, 100 * i + 50);
    m[2].t.collectives.ForEachColumn([&](const schema::ColumnInfo&, auto& column) {
      column.erase(column.begin() + static_cast<std::ptrdiff_t>(row));
    });
    m.Run();
    EXPECT_EQ(m.matched.unmatched, 1u);
    ASSERT_EQ(m.collectives().rows(), 10u);
    EXPECT_EQ(m.collectives().seen[row], 3u);
    EXPECT_EQ(m.collectives().censored[row], 1) << "the missing member may have come last";
    EXPECT_EQ(m.collectives().transfer_ns[row], -1);
    EXPECT_EQ(m.collectives().last_rank[row], -1);
    EXPECT_EQ(m.collectives().last_rank[(row + 1) % 10], 3);
  }
}

TEST(Match, WhatARanksDeathCutIsNotUnmatched) {
  Merged m(2);
  for (std::int64_t i = 0; i < 10; ++i) {
    m[0].Collective(Kind::kAllReduce, 100 * i, 100 * i + 50);
    if (i < 6) m[1].Collective(Kind::kAllReduce, 100 * i, 100 * i + 50);
  }
  m.cut_end = {false, true};
  m.Run();
  EXPECT_EQ(m.matched.unmatched, 0u);
  EXPECT_EQ(m.matched.cut, 4u);
}

TEST(Match, MissingRankMakesNothingUnmatched) {
  Merged m(3, 2);  // Three members, two files.
  m[0].Collective(Kind::kAllReduce, 0, 30);
  m[1].Collective(Kind::kAllReduce, 10, 30);
  m.Run();
  EXPECT_EQ(m.matched.unmatched, 0u);
  EXPECT_EQ(m.matched.cut, 1u);
  EXPECT_EQ(m.collectives().expected[0], 3u);
  EXPECT_EQ(m.collectives().last_rank[0], -1);
  EXPECT_EQ(m.members().wait_ns[0], 10) << "nobody could leave before rank 1 came";
}

TEST(Match, ArrivalAfterAnEndIsAViolationBeyondTheErrorOnly) {
  for (const std::int64_t error : {0, 10}) {
    Merged m(2);
    m.error_ns = {error, error};
    m[0].Collective(Kind::kAllReduce, 0, 30);
    m[1].Collective(Kind::kAllReduce, 45, 60);
    m.Run();
    EXPECT_EQ(m.checks.violations, error == 0 ? 1u : 0u);
    EXPECT_EQ(m.members().wait_ns[0], 30);
    EXPECT_EQ(m.members().transfer_ns[0], 0);
  }
}

TEST(Match, SubcommunicatorsAndUnidentifiedOnes) {
  Merged m(2);
  for (int r = 0; r < 2; ++r) {
    m[r].t.comms.Append({.comm = 1, .global_id = 500u + static_cast<unsigned>(r), .size = 1, .kind = 2, .stride = 1});
    m[r].t.comms.Append({.comm = 2, .global_id = 0, .size = 2, .rank = r, .unidentified = 1});
    m[r].Collective(Kind::kAllReduce, 10 * r, 30, 8, -1, 1);
    m[r].Collective(Kind::kAllReduce, 100 + 10 * r, 130, 8, -1, 2);
  }
  m.Run();
  EXPECT_EQ(m.collectives().rows(), 2u) << "each rank's own; the unidentified one is not matched";
  EXPECT_EQ(m.matched.unmatched, 0u);
  EXPECT_EQ(m.matched.losses.size(), 2u);
  EXPECT_EQ(m.terms[0].exposed_unsplit_ns, 30);
  EXPECT_EQ(m.terms[0].exposed_transfer_ns, 30);
}

TEST(Match, ClockFreeCheckSeesAShiftedRank) {
  for (const std::int64_t shift : {0, 15000}) {
    Merged m(3);
    m.error_ns = {1, 1, 1};
    for (std::int64_t i = 0; i < 5; ++i)
      for (int r = 0; r < 3; ++r) m[r].Collective(Kind::kAllReduce, 1000000 * i, 1000000 * i + 200000 + r);
    if (shift != 0) m[2].ShiftClock(shift);
    m.Run();
    EXPECT_EQ(m.checks.free_checked, 5u);
    EXPECT_EQ(m.checks.free_disagreed, shift == 0 ? 0u : 5u);
  }
}

TEST(MatchP2p, ReceiveCountsFromTheSendsPost) {
  Merged m(2);
  m[0].Message(true, 1, 1, 100, 400);  // Late sender: 300 before, 100 in flight.
  m[1].Message(false, 0, 1, 300, 320);
  m.Run();
  EXPECT_EQ(m.p2p.unmatched, 0u);
  EXPECT_EQ(m.p2p.matched, 1u);
  EXPECT_EQ(m.terms[0].exposed_unsplit_ns, 100);
  EXPECT_EQ(m.terms[0].exposed_wait_ns, 200);
  EXPECT_EQ(m.terms[1].exposed_unsplit_ns, 20);
}

TEST(MatchP2p, CountsThoseWithoutPartner) {
  Merged m(2);
  m[0].Message(false, 1, 1, 100, 110);
  m[0].Message(false, 1, 2, 120, 130);
  m[0].Message(false, 1, 1, 140, 150, 9);  // Another tag.
  m[1].Message(true, 0, 1, 90, 115);
  m[1].Message(true, 0, 2, 116, 135);
  m[1].Call(MpiOp::kBarrier, 500, 501);
  m.Run();
  EXPECT_EQ(m.p2p.matched, 2u);
  EXPECT_EQ(m.p2p.unmatched, 1u);
}

// A send that was refused was never on the way: the next one is the message that is received.
TEST(MatchP2p, FailedSendsAndPostsAreNoMessages) {
  Merged m(2);
  for (const std::int32_t r : {0, 1}) {
    m[r].Message(r == 1, 1 - r, 1, 100, 101);
    m[r].t.p2p.outcome[0] = schema::RequestOutcome::kError;
    m[r].Message(r == 1, 1 - r, 2, 200, 230);
    m[r].Message(r == 1, 1 - r, 3, 300, 330);
  }
  m[1].t.p2p.end_ns[0] = schema::kNoTime;
  // A message that was longer than its buffer has been taken all the same.
  m[1].t.p2p.outcome[2] = schema::RequestOutcome::kError;
  m.Run();
  EXPECT_EQ(m.p2p.matched, 2u);
  EXPECT_EQ(m.p2p.unmatched, 0u);
}

// Who sent what is received from any source may not be told (gloo). Its sender is traced and dropped nothing.
TEST(MatchP2p, ReceivesFromAnySource) {
  Merged m(2);
  m[0].Message(true, -1, 0, 100, 130, 3);
  m[1].Message(false, 0, 0, 90, 120, 3);
  m[1].Message(false, 0, 0, 130, 140, 4);  // Another tag, which nobody receives.
  m[0].Call(MpiOp::kBarrier, 500, 501);
  m.Run();
  EXPECT_EQ(m.p2p.matched, 0u);
  EXPECT_EQ(m.p2p.unmatched, 1u);
  EXPECT_EQ(m.p2p.unplaced, 1u);
  std::map<std::string, std::uint64_t> losses;
  for (const merge::RunLoss& loss : m.p2p.losses) losses[loss.name] += loss.count;
  EXPECT_EQ(losses, (std::map<std::string, std::uint64_t>{{"P2pAnySource", 1}, {"UnmatchedP2p", 1}}));
}

TEST(Match, ResultDoesNotDependOnThreadsOrOnAClocksOrigin) {
  const auto run = [](unsigned jobs, std::int64_t shift) {
    Merged m(4);
    m.jobs = jobs;
    for (std::int64_t i = 0; i < 300; ++i)
      for (int r = 0; r < 4; ++r)
        m[r].Collective(Kind::kAllReduce, 1000 * i + 37 * r * (i % 5), 1000 * i + 700 + 3 * r);
    m[1].ShiftClock(shift);
    m.offset_ns[1] = -shift;
    m.Run();
    return std::make_tuple(m.collectives().transfer_ns, m.collectives().last_rank, m.members().wait_ns,
                           m.members().arrival_ns, m.terms[1].exposed_wait_ns, m.terms[1].compute_ns);
  };
  const auto one = run(1, 0);
  EXPECT_EQ(run(4, 0), one);
  EXPECT_EQ(run(2, 1'000'000'000'000), one);
}

}  // namespace
}  // namespace lockstep::test
