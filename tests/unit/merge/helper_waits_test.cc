// When a training thread waited for another thread's collectives, told by its CPU time.

#include "merge/timeline/helper_waits.h"

#include <gtest/gtest.h>

#include "rank_builder.h"

namespace lockstep::merge {
namespace {

using test::RankBuilder;

struct Rank : RankBuilder {
  Rank() : RankBuilder(0, 2) {}
  // Made by the other thread.
  void Reduce(std::int64_t begin, std::int64_t end) {
    Collective(CollectiveKind::kAllReduce, begin, end);
    t.collectives.thread.back() = t.mpi_calls.thread.back() = 1;
    t.collectives.enqueue_begin_ns.back() = schema::kNoTime;
  }
  // The training thread had handed it over before.
  void ReduceOf(std::int64_t handed_over, std::int64_t begin, std::int64_t end) {
    Reduce(begin, end);
    t.collectives.enqueue_begin_ns.back() = handed_over;
  }
  void Range(std::int64_t begin, std::int64_t end) {
    Input(begin, end);
    t.ranges.category.back() = 0;
  }
  void Give(std::int64_t begin, std::int64_t end) {
    Range(begin, end);
    t.ranges.name.back() = Text("ddp bucket 1");
  }
  IntervalSet Waits() const { return HelperWaits(t, *ingest::ReadFromMemory(t), 0); }
};

// Nothing tells where in the step it slept: the last of what ended when it went on.
TEST(HelperWaits, UntilItWentOn) {
  Rank rank;
  rank.Step(0, 0, 1'000'000, true, 600'000);
  rank.Range(100'000, 150'000);
  rank.Reduce(300'000, 400'000);
  rank.Reduce(500'000, 980'000);
  EXPECT_EQ(rank.Waits(), (IntervalSet{{580'000, 980'000}}));
}

// What stands before it in the other thread's queue holds up the one that is waited for.
TEST(HelperWaits, ForTheQueueBeforeIt) {
  Rank rank;
  rank.Step(0, 0, 10'000'000, true, 1'000'000);
  rank.Range(0, 9'000'000);
  rank.ReduceOf(500'000, 600'000, 3'000'000);
  rank.ReduceOf(1'000'000, 3'000'000, 6'000'000);
  rank.ReduceOf(1'200'000, 6'100'000, 8'900'000);
  EXPECT_EQ(rank.Waits(), (IntervalSet{{1'200'000, 6'000'000}, {6'100'000, 8'900'000}}));
}

// It came to the queue late: before that nobody waited for it, whatever was in the queue.
TEST(HelperWaits, NotBeforeItWasHandedOver) {
  Rank rank;
  rank.Step(0, 0, 10'000'000, true, 1'000'000);
  rank.Range(0, 9'000'000);
  rank.ReduceOf(500'000, 600'000, 6'000'000);
  rank.ReduceOf(4'000'000, 6'000'000, 8'900'000);
  EXPECT_EQ(rank.Waits(), (IntervalSet{{4'000'000, 8'900'000}}));
}

// A thread that sleeps elsewhere, in one piece from step to step, did not wait for what nobody knows to be handed over.
TEST(HelperWaits, SleepFromStepToStep) {
  Rank rank;
  rank.Step(0, 0, 10'000'000, true, 1'000'000);
  rank.Reduce(2'000'000, 5'000'000);
  rank.Reduce(9'800'000, 9'950'000);
  EXPECT_EQ(rank.Waits(), (IntervalSet{{9'800'000, 9'950'000}}));
}

TEST(HelperWaits, WhoDidNotGoOnWhenItEndedDidNotWaitForIt) {
  Rank rank;
  rank.Step(0, 0, 10'000'000, true, 1'000'000);  // Sleeps in its work.
  rank.Reduce(1'000'000, 3'000'000);
  EXPECT_TRUE(rank.Waits().empty());
}

TEST(HelperWaits, AfterTheLastBucketWasGivenAway) {
  Rank rank;
  rank.Step(0, 0, 10'000'000, true, 1'000'000);
  rank.Give(2'000'000, 2'100'000);
  rank.Give(5'000'000, 5'100'000);
  rank.Reduce(2'100'000, 4'000'000);
  rank.Reduce(5'050'000, 7'000'000);
  EXPECT_EQ(rank.Waits(), (IntervalSet{{5'100'000, 7'000'000}}));
}

TEST(HelperWaits, NotLongerThanItSlept) {
  Rank rank;
  rank.Step(0, 0, 10'000'000, true, 9'500'000);
  rank.Give(5'000'000, 5'100'000);
  rank.Reduce(5'100'000, 9'000'000);
  EXPECT_EQ(rank.Waits(), (IntervalSet{{8'500'000, 9'000'000}}));
}

TEST(HelperWaits, WhoNeverSleptDidNotWait) {
  Rank rank;
  rank.Step(0, 0, 100, true, 100);
  rank.Reduce(50, 70);
  EXPECT_TRUE(rank.Waits().empty());
}

TEST(HelperWaits, StepsAreToldApart) {
  Rank rank;
  rank.Step(0, 0, 100, true, 90);
  rank.Step(1, 100, 200, true, 70);
  rank.Reduce(50, 90);
  rank.Reduce(150, 190);
  EXPECT_EQ(rank.Waits(), (IntervalSet{{80, 90}, {160, 190}}));
}

// The other thread woke the training thread, and lost its core before it noted the end.
TEST(HelperWaits, AnEndThatWasNotedLate) {
  for (const std::int64_t noted : {42'100'000, 43'500'000}) {  // The second after the step's end.
    Rank rank;
    rank.Step(0, 0, 43'000'000, true, 9'000'000);
    rank.Step(1, 43'000'000, 86'000'000, true, 43'000'000);
    rank.Range(5'000'000, 42'000'000);
    rank.Range(42'300'000, 42'600'000);
    rank.Range(43'100'000, 43'200'000);
    rank.Reduce(8'000'000, noted);
    EXPECT_EQ(rank.Waits(), (IntervalSet{{8'000'000, 42'000'000}})) << noted;
  }
}

// What ends in the next step was not waited for in this one.
TEST(HelperWaits, AcrossAStepsEnd) {
  Rank rank;
  rank.Step(0, 0, 10'000'000, true, 1'000'000);
  rank.Step(1, 10'000'000, 20'000'000, true, 1'000'000);
  rank.Give(5'000'000, 5'100'000);
  rank.Reduce(5'100'000, 12'000'000);
  EXPECT_TRUE(rank.Waits().empty());
}

TEST(HelperWaits, NeitherInputNorALackOfCores) {
  Rank rank;
  rank.Step(0, 0, 100, true, 40);
  rank.Input(0, 30);
  rank.t.cpu_samples.Append({.time_ns = 0, .thread = 0, .cpu_ns = -1, .run_delay_ns = 0});
  rank.t.cpu_samples.Append({.time_ns = 100, .thread = 0, .cpu_ns = -1, .run_delay_ns = 10});
  rank.Reduce(50, 90);
  EXPECT_EQ(rank.Waits(), (IntervalSet{{70, 90}}));  // 100 - 40 of CPU time - 30 of input - 10 without a core.
}

TEST(HelperWaits, OwnCollectivesAreCallsAnyway) {
  Rank rank;
  rank.Step(0, 0, 100, true, 60);
  rank.Collective(CollectiveKind::kAllReduce, 50, 90);
  EXPECT_TRUE(rank.Waits().empty());
}

TEST(HelperWaits, UnknownCpuTimeProvesNothing) {
  Rank rank;
  rank.Step(0, 0, 100);
  rank.Reduce(50, 90);
  EXPECT_TRUE(rank.Waits().empty());
}

}  // namespace
}  // namespace lockstep::merge
