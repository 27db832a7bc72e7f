// What the recorded waits of a training thread were, and what they make of a step's terms.

#include "merge/timeline/blocked_time.h"

#include <gtest/gtest.h>

#include "core/awaited_operation.h"
#include "fixture.h"

namespace lockstep::merge {
namespace {

using test::Merged;
using test::RankBuilder;
using Waits = schema::BlockedKind;

// The other thread carries these.
void Carry(RankBuilder& rank, std::int64_t begin, std::int64_t end) {
  rank.Collective(CollectiveKind::kAllReduce, begin, end);
  rank.t.collectives.thread.back() = rank.t.mpi_calls.thread.back() = 1;
}

std::vector<Interval> OwnTimes(const BlockedTime& blocked) {
  std::vector<Interval> times;
  for (const BlockedTime::Own& own : blocked.own) times.push_back(own.at);
  return times;
}

TEST(AwaitedOperation, TheLastThatItsCarrierHadBegun) {
  const CarriedOperations carried({{7, {100, 200}}, {7, {200, 300}}, {8, {0, 1000}}, {7, {400, INT64_MAX}}});
  EXPECT_EQ(carried.AwaitedBy({50, 205}, 7, 199), 0u) << "the next one had not begun";
  EXPECT_EQ(carried.AwaitedBy({50, 305}, 7, 302), 1u);
  EXPECT_EQ(carried.AwaitedBy({299, 305}, 7, 302), 1u) << "its end is noted before the signal";
  EXPECT_EQ(carried.AwaitedBy({300, 305}, 7, 302), CarriedOperations::kNone) << "both had ended";
  EXPECT_EQ(carried.AwaitedBy({300, 500}, 7, 450), 3u);
  EXPECT_EQ(carried.AwaitedBy({50, 90}, 7, 80), CarriedOperations::kNone);
  EXPECT_EQ(carried.AwaitedBy({50, 90}, 9, 80), CarriedOperations::kNone);
  // A thread may have several under way.
  const CarriedOperations beside({{7, {100, 900}}, {7, {200, 300}}});
  EXPECT_EQ(beside.AwaitedBy({400, 905}, 7, 902), 0u);
}

TEST(BlockedTime, ByWhoSignalled) {
  RankBuilder rank(0, 2);
  Carry(rank, 300, 700);
  rank.Blocked(Waits::kCondition, 100, 200, 1);  // Before it began.
  rank.Blocked(Waits::kCondition, 250, 705, 1);
  rank.Blocked(Waits::kCondition, 800, 850, 1);  // It had ended.
  rank.Blocked(Waits::kSleep, 900, 950);
  const BlockedTime blocked = FindBlockedTime(rank.t, 0);
  EXPECT_EQ(blocked.awaited, (IntervalSet{{250, 705}}));
  EXPECT_EQ(OwnTimes(blocked), (std::vector<Interval>{{100, 200}, {800, 850}, {900, 950}}));
  EXPECT_EQ(blocked.own[2].kind, Waits::kSleep);
  EXPECT_EQ(blocked.own[2].row, 3u);
  EXPECT_TRUE(FindBlockedTime(rank.t, 1).own.empty());
}

// Whatever runs beside them, and whoever signals.
TEST(BlockedTime, SleepsFilesTimeoutsAndPythonsLockAwaitNothing) {
  RankBuilder rank(0, 2);
  Carry(rank, 0, 1000);
  rank.Blocked(Waits::kSleep, 100, 200, 1);
  rank.Blocked(Waits::kFile, 200, 300, 1);
  rank.Blocked(Waits::kPython, 300, 400, 1);
  rank.Blocked(Waits::kCondition, 400, 500, 1);
  rank.t.blocked.timed_out.back() = 1;
  rank.Blocked(Waits::kCondition, 500, 600);
  const BlockedTime blocked = FindBlockedTime(rank.t, 0);
  EXPECT_TRUE(blocked.awaited.empty());
  EXPECT_EQ(blocked.own.size(), 5u);
}

TEST(BlockedTime, OutsideCallsAndInput) {
  RankBuilder rank(0, 2);
  Carry(rank, 500, 700);
  rank.Call(MpiOp::kSend, 120, 150);
  rank.Input(160, 170);
  rank.Input(165, 180, 1);  // Of another thread.
  rank.Blocked(Waits::kSleep, 100, 200);
  rank.Call(MpiOp::kSend, 600, 620);
  rank.Blocked(Waits::kCondition, 550, 710, 1);
  const BlockedTime blocked = FindBlockedTime(rank.t, 0);
  EXPECT_EQ(OwnTimes(blocked), (std::vector<Interval>{{100, 120}, {150, 160}, {170, 200}}));
  EXPECT_EQ(blocked.awaited, (IntervalSet{{550, 600}, {620, 710}}));
}

// From the wait's begin, and only for what others can end.
TEST(BlockedTime, WhatOthersComputeMeanwhileIsCompute) {
  RankBuilder rank(0, 2);
  Carry(rank, 700, 900);
  rank.Blocked(Waits::kJoin, 100, 200, schema::kNone, 70);
  rank.Blocked(Waits::kCondition, 300, 400, schema::kNone, 350);  // Of several threads.
  rank.Blocked(Waits::kSleep, 500, 600, schema::kNone, 100);
  rank.Blocked(Waits::kCondition, 650, 905, 1, 255);  // What they compute is the collective.
  const BlockedTime blocked = FindBlockedTime(rank.t, 0);
  EXPECT_EQ(blocked.computed, (IntervalSet{{100, 170}, {300, 400}}));
  EXPECT_EQ(OwnTimes(blocked), (std::vector<Interval>{{170, 200}, {500, 600}}));
  EXPECT_EQ(blocked.awaited, (IntervalSet{{650, 905}}));
}

TEST(BlockedTime, RowsThatOverlapCountOnceAndUnknownKindsAreOther) {
  RankBuilder rank(0, 2);
  rank.Blocked(Waits::kLock, 150, 300);
  rank.Blocked(200, 100, 200);
  const BlockedTime blocked = FindBlockedTime(rank.t, 0);
  EXPECT_EQ(OwnTimes(blocked), (std::vector<Interval>{{100, 200}, {200, 300}}));
  EXPECT_EQ(blocked.own[0].kind, Waits::kOther);
}

TEST(BlockedTime, InTheTermsOfAStep) {
  Merged m(2);
  for (int r = 0; r < 2; ++r) {
    m[r].Step(0, 0, 1000);
    Carry(m[r], 400 + 50 * r, 600);
  }
  m[0].Blocked(Waits::kSleep, 100, 150);
  m[0].Blocked(Waits::kFile, 200, 210);
  m[0].Blocked(Waits::kLock, 250, 270);
  m[0].Blocked(Waits::kPython, 300, 330);
  m[0].Blocked(Waits::kSocket, 340, 345);
  m[0].Blocked(Waits::kChild, 350, 352);
  m[0].Blocked(Waits::kSemaphore, 390, 605, 1);
  m[0].Blocked(Waits::kCondition, 700, 800, schema::kNone, 40);
  m.Run();
  const auto& t = m.terms[0];
  EXPECT_EQ(t.exposed_wait_ns, 50);
  EXPECT_EQ(t.exposed_transfer_ns, 150);
  EXPECT_EQ(t.helper_wait_ns, 200);
  EXPECT_EQ(t.overlap_ns, 0);
  EXPECT_EQ(t.blocked_sleep_ns, 50);
  EXPECT_EQ(t.blocked_file_ns, 10);
  EXPECT_EQ(t.blocked_lock_ns, 20 + 60 + 15) << "with what of the wait lies outside the collective";
  EXPECT_EQ(t.blocked_python_ns, 30);
  EXPECT_EQ(t.blocked_socket_ns, 5);
  EXPECT_EQ(t.blocked_unplaced_ns, 0) << "nothing says how long the thread had no core";
  EXPECT_EQ(t.blocked_ns, 50 + 10 + 95 + 30 + 5 + 2);
  EXPECT_EQ(t.compute_ns, 1000 - 200 - t.blocked_ns);
  EXPECT_EQ(m.terms[1].overlap_ns, 150);
  EXPECT_EQ(m.terms[1].blocked_ns, 0);
  EXPECT_EQ(m.passed[0].step_ranks.blocked_lock_ns[0], t.blocked_lock_ns);
}

}  // namespace
}  // namespace lockstep::merge
