// Numbers for collectives that nothing numbered: traces that begin and end anywhere,
// miss operations, repeat themselves.

#include "merge/match/order.h"

#include <gtest/gtest.h>

#include "gpu_job.h"

namespace lockstep::test {
namespace {

constexpr std::int64_t kMs = 1'000'000;

struct Outcome {
  std::size_t rows = 0, placed = 0, wrong = 0;
  std::uint64_t ambiguous = 0;
};

Outcome Order(GpuJob& job, unsigned jobs = 1) {
  job.Run();
  Outcome out;
  for (const merge::RunLoss& loss : merge::NumberCollectives(job.files, jobs))
    if (loss.name == Info(Loss::kCollectiveAmbiguous).name) out.ambiguous += loss.count;
  out.placed = job.Check(&out.wrong);
  for (const merge::RunRank& file : job.files) out.rows += file.head.collectives.rows();
  return out;
}

void ExpectAll(const Outcome& out) {
  EXPECT_EQ(out.wrong, 0u);
  EXPECT_EQ(out.placed, out.rows);
  EXPECT_EQ(out.ambiguous, 0u);
}

TEST(Order, WholeTracesKeepTheirOrder) {
  GpuJob job(8);
  ExpectAll(Order(job));
  for (const merge::RunRank& file : job.files)
    for (std::size_t i = 0; i < file.head.collectives.rows(); ++i) EXPECT_EQ(file.head.collectives.seq[i], i);
}

// Clocks seconds apart: the rhythm or the numbers tell which step is which.
TEST(Order, OneRankStartsAStepLater) {
  for (const bool numbered : {true, false})
    for (const bool regular : {true, false})
      for (const std::size_t late : {0u, 3u}) {
        if (!numbered && regular) continue;  // Nothing decides: see below.
        GpuJob job(6);
        job.jitter_ns = regular ? 0 : 200'000;
        job.ranks[late].first_step = 1;
        for (std::size_t r = 0; r < 6; ++r) {
          job.ranks[r].numbered = numbered;
          job.ranks[r].clock = {static_cast<std::int64_t>(r) * 1234 * kMs, static_cast<double>(r) * 20 - 50};
        }
        SCOPED_TRACE(testing::Message() << numbered << regular << late);
        ExpectAll(Order(job));
      }
}

TEST(Order, SameLengthButAStepApart) {
  for (const bool numbered : {true, false}) {
    GpuJob job(4);
    job.ranks[2].first_step = 1;
    for (const std::size_t r : {0u, 1u, 3u}) job.ranks[r].end_step = 19;
    for (JobRank& rank : job.ranks) rank.numbered = numbered;
    job.ranks[2].clock.offset_ns = -777 * kMs;
    ExpectAll(Order(job));
  }
}

TEST(Order, WithoutNumbersAndRhythmTheWallClockDecidesOrNothing) {
  for (const std::int64_t offset : {2 * kMs, 3000 * kMs + 4 * kMs}) {
    GpuJob job(4);
    job.jitter_ns = 0;
    job.pause_ns = 100 * kMs;
    job.ranks[2].first_step = 1;
    for (JobRank& rank : job.ranks) rank.numbered = false;
    job.ranks[2].clock.offset_ns = offset;
    const Outcome out = Order(job);
    EXPECT_EQ(out.wrong, 0u);
    if (offset < 10 * kMs) {
      EXPECT_EQ(out.placed, out.rows);
    } else {
      EXPECT_EQ(out.ambiguous, job.files[2].head.collectives.rows());
      EXPECT_EQ(out.placed, out.rows - out.ambiguous);
    }
  }
}

TEST(Order, AnotherStepNumberOnOneRankDoesNotMatter) {
  GpuJob job(8);
  job.steps = 1;
  job.pattern = {
      {CollectiveKind::kAllToAll, 0}, {CollectiveKind::kAllToAll, 0}, {}, {CollectiveKind::kAllToAll, 0}, {}};
  job.ranks[3].step_shift = 1;
  job.ranks[3].clock.offset_ns = 4000 * kMs;
  ExpectAll(Order(job));
  GpuJob longer(8);
  longer.ranks[3].step_shift = 1;
  ExpectAll(Order(longer));
}

TEST(Order, CutAtBothEnds) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 20; ++trial) {
    GpuJob job(5);
    job.seed = static_cast<std::uint64_t>(trial);
    for (JobRank& rank : job.ranks) {
      rank.skip_first = static_cast<int>(random() % 8);
      rank.skip_last = static_cast<int>(random() % 20);
      rank.clock.offset_ns = static_cast<std::int64_t>(random() % 5000) * kMs;
    }
    SCOPED_TRACE(trial);
    ExpectAll(Order(job));
  }
}

TEST(Order, OperationsMissingInTheMiddle) {
  for (const bool alike : {false, true}) {
    std::mt19937 random(5);
    for (int trial = 0; trial < 20; ++trial) {
      GpuJob job(6);
      job.steps = 60;
      job.seed = static_cast<std::uint64_t>(trial);
      if (alike) job.pattern = {{}, {}, {}, {}};
      std::size_t dropped = 0;
      for (std::size_t r = 0; r < 6; ++r) {
        job.ranks[r].clock = {static_cast<std::int64_t>(random() % 900) * kMs, 40.0 - 15 * static_cast<double>(r)};
        for (int k = 0; k < 4; ++k) job.ranks[r].dropped.insert(static_cast<int>(random() % 180));
        // And a block longer than a step.
        const int at = 20 + static_cast<int>(random() % 100);
        if (r % 2 == 0)
          for (int k = 0; k < 7; ++k) job.ranks[r].dropped.insert(at + k);
        dropped += job.ranks[r].dropped.size();
      }
      const Outcome out = Order(job);
      EXPECT_EQ(out.wrong, 0u) << trial << alike;
      EXPECT_GE(out.placed + 6, out.rows) << trial << alike;
    }
  }
}

// A step of eight, two of them not in one trace: too little for any stretch to fit as a whole.
TEST(Order, ShortTracesWithHoles) {
  const JobOp exchange{.kind = CollectiveKind::kAllToAll};
  for (int first = 0; first < 8; ++first)
    for (int second = first; second < 8; ++second) {
      GpuJob job(4);
      job.steps = 1;
      job.pattern = {exchange, exchange, exchange, exchange, {}, exchange, {}, {}};
      job.ranks[2].dropped = {first, second};
      job.ranks[2].clock.offset_ns = 3000 * kMs;
      job.seed = static_cast<std::uint64_t>(first * 8 + second);
      SCOPED_TRACE(testing::Message() << first << " " << second);
      ExpectAll(Order(job));
    }
}

// Sampled: each rank recorded other steps; what some have in common is found.
TEST(Order, SampledSteps) {
  GpuJob job(4);
  job.steps = 30;
  job.ranks[0].end_step = 10;
  job.ranks[1].first_step = 5, job.ranks[1].end_step = 15;
  job.ranks[2].first_step = 8, job.ranks[2].end_step = 18;
  job.ranks[3].first_step = 16, job.ranks[3].end_step = 30;
  const Outcome out = Order(job);
  EXPECT_EQ(out.wrong, 0u);
  EXPECT_EQ(out.placed, out.rows);
}

TEST(Order, FewOperations) {
  for (int n = 1; n <= 3; ++n) {
    GpuJob job(8);
    job.steps = 1;
    job.pattern.assign(static_cast<std::size_t>(n), {});
    for (std::size_t r = 0; r < 8; ++r) job.ranks[r].clock.offset_ns = static_cast<std::int64_t>(r) * 500 * kMs;
    ExpectAll(Order(job));
  }
}

// The last of one rank's operations looks like the first of the other's: still no reason to doubt.
TEST(Order, CornersAreNoRivals) {
  GpuJob job(2);
  job.steps = 1;
  job.pattern = {{}, {CollectiveKind::kAllGather, 5}, {CollectiveKind::kReduceScatter, 5}, {}};
  job.ranks[1].numbered = false;
  job.ranks[1].clock.offset_ns = 5000 * kMs;
  ExpectAll(Order(job));
}

TEST(Order, ADisagreementStaysOneOperation) {
  GpuJob job(3);
  job.Run();
  job.files[1].head.collectives.bytes[7] += 4;
  (void)merge::NumberCollectives(job.files, 1);
  std::size_t wrong = 0;
  EXPECT_EQ(job.Check(&wrong), 180u);
  EXPECT_EQ(wrong, 0u);
}

// A group that was guessed: pairs that synchronise by themselves are told apart.
TEST(Order, GuessedGroupThatIsTwo) {
  GpuJob job(4);
  job.identity = 2;
  job.steps = 40;
  job.jitter_ns = 800'000;
  job.groups = {{0, 1}, {2, 3}};
  const Outcome out = Order(job);
  EXPECT_EQ(out.wrong, 0u);
  EXPECT_EQ(job.files[0].head.comms.global_id[0], job.files[1].head.comms.global_id[0]);
  EXPECT_EQ(job.files[2].head.comms.global_id[0], job.files[3].head.comms.global_id[0]);
  EXPECT_NE(job.files[0].head.comms.global_id[0], job.files[2].head.comms.global_id[0]);
  EXPECT_EQ(job.files[0].head.comms.size[0], 2u);
  EXPECT_EQ(out.placed, out.rows);
}

TEST(Order, GuessedGroupOfStrangers) {
  GpuJob job(3);
  job.identity = 2;
  job.groups = {{0}, {1}, {2}};
  const Outcome out = Order(job);
  EXPECT_EQ(out.placed, 0u);
}

TEST(Order, NumberedCommunicatorsAreLeftAlone) {
  GpuJob job(2);
  job.identity = 0;
  job.ranks[1].first_step = 1;
  job.Run();
  EXPECT_TRUE(merge::NumberCollectives(job.files, 1).empty());
  EXPECT_EQ(job.files[1].head.collectives.seq[0], 0u);
}

// One trace has the library's own numbers, the other has not: order counts on both.
TEST(Order, NumbersOnOneRankOnly) {
  GpuJob job(2);
  job.ranks[1].first_step = 1;
  job.Run();
  job.files[0].head.comms.identity[0] = 0;
  for (std::uint64_t& seq : job.files[0].head.collectives.seq) seq += 5000;
  EXPECT_TRUE(merge::NumberCollectives(job.files, 1).empty());
  std::size_t wrong = 0;
  EXPECT_EQ(job.Check(&wrong), 117u);
  EXPECT_EQ(wrong, 0u);
}

TEST(Order, SameForAnyNumberOfThreads) {
  const auto numbers = [](unsigned jobs) {
    GpuJob job(9);
    job.ranks[4].first_step = 2;
    job.ranks[5].dropped = {10, 11, 12, 30};
    job.ranks[6].skip_last = 5;
    Order(job, jobs);
    std::vector<std::uint64_t> all;
    for (const merge::RunRank& file : job.files)
      all.insert(all.end(), file.head.collectives.seq.begin(), file.head.collectives.seq.end());
    return all;
  };
  EXPECT_EQ(numbers(1), numbers(4));
}

// In linear time: a quadratic one takes longer than a test may.
TEST(Order, LongTraces) {
  GpuJob job(4);
  job.steps = 20'000;  // 60,000 operations each.
  job.ranks[1].first_step = 3;
  job.ranks[2].dropped = {1000, 1001, 50'000};
  job.ranks[3].clock.offset_ns = 2500 * kMs;
  const Outcome out = Order(job);
  EXPECT_EQ(out.wrong, 0u);
  EXPECT_EQ(out.placed, out.rows);
}

}  // namespace
}  // namespace lockstep::test
