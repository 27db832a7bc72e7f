// Whether a change that was put in is seen, and one that was not is not.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/all_runs.h"
#include "tests/unit/analysis/diff/runs.h"

namespace lockstep::test {
namespace {

using diff::Verdict;

const int kPairs = Runs(11, 200), kMostWrong = kPairs * 18 / 200;

struct Counts {
  int same = 0, better = 0, worse = 0, cannot_tell = 0;
  int any_changed = 0;  // Pairs in which some measure was called better or worse.
};

void Count(const diff::Comparison& comparison, Counts& counts) {
  counts.same += comparison.verdict == Verdict::kSame;
  counts.better += comparison.verdict == Verdict::kBetter;
  counts.worse += comparison.verdict == Verdict::kWorse;
  counts.cannot_tell += comparison.verdict == Verdict::kCannotTell;
  counts.any_changed += std::any_of(comparison.measures.begin(), comparison.measures.end(), [](const auto& result) {
    return result.verdict == Verdict::kBetter || result.verdict == Verdict::kWorse;
  });
}

Counts Pairs(const PairSpec& base, const PairSpec& now, std::uint64_t seed) {
  Counts counts;
  for (int i = 0; i < kPairs; ++i) {
    const auto pair = seed + 2 * static_cast<std::uint64_t>(i);
    Count(CompareRuns(SampleRun(MakeRun(base, pair), "base"), SampleRun(MakeRun(now, pair + 1), "new")), counts);
  }
  testing::Test::RecordProperty("same", counts.same);
  testing::Test::RecordProperty("better", counts.better);
  testing::Test::RecordProperty("worse", counts.worse);
  testing::Test::RecordProperty("cannot_tell", counts.cannot_tell);
  testing::Test::RecordProperty("any_changed", counts.any_changed);
  return counts;
}

TEST(DiffTruth, NothingChanged) {
  const Counts counts = Pairs({}, {}, 1000);
  EXPECT_LE(kPairs - counts.same, kMostWrong) << counts.better << " " << counts.worse << " " << counts.cannot_tell;
  EXPECT_LE(counts.any_changed, kMostWrong);
}

TEST(DiffTruth, AllRanksFivePercentSlower) {
  PairSpec slower;
  slower.factor = 1.05;
  const Counts counts = Pairs({}, slower, 2000);
  EXPECT_LE(kPairs - counts.worse, kMostWrong) << counts.same << " same, " << counts.cannot_tell << " cannot tell";
}

TEST(DiffTruth, OneRankFivePercentSlowerIsNamed) {
  const int pairs = Runs(3, 10);
  int worse = 0, named = 0, others_named = 0;
  for (int i = 0; i < pairs; ++i) {
    PairSpec base, slower;
    base.ranks = slower.ranks = 8;
    // The slowest of eight decides a step: beside noise of 2 % a rank slowed by 5 % would cost only half of that.
    base.noise = slower.noise = 0.005;
    slower.factor = 1.05;
    slower.slowed = i % 8;
    const auto comparison = CompareRuns(SampleRun(MakeRun(base, 3000 + 2 * static_cast<std::uint64_t>(i)), "base"),
                                        SampleRun(MakeRun(slower, 3001 + 2 * static_cast<std::uint64_t>(i)), "new"));
    worse += comparison.verdict == Verdict::kWorse;
    for (const diff::Cause& cause : comparison.causes) {
      named += cause.kind == diff::CauseKind::kRank && cause.rank == slower.slowed;
      others_named += cause.kind == diff::CauseKind::kRank && cause.rank != slower.slowed;
    }
  }
  EXPECT_GE(worse, pairs - pairs / 10);
  EXPECT_GE(named, pairs - pairs / 10);
  EXPECT_LE(others_named, pairs / 10);
}

TEST(DiffTruth, OneOfTwoRanksIsNamed) {
  PairSpec base, slower;
  base.ranks = slower.ranks = 2;
  slower.factor = 1.06;
  slower.slowed = 1;
  const auto before = SampleRun(MakeRun(base, 41), "base"), after = SampleRun(MakeRun(slower, 42), "new");
  const auto worse = CompareRuns(before, after);
  ASSERT_FALSE(worse.causes.empty());
  EXPECT_EQ(worse.causes[0].rank, 1);
  const auto better = CompareRuns(after, before);
  EXPECT_EQ(better.verdict, Verdict::kBetter);
  ASSERT_FALSE(better.causes.empty());
  EXPECT_EQ(better.causes[0].rank, 1);
  EXPECT_LT(*better.causes[0].change_ns, 0);
}

// Steps that resemble their neighbours carry less than their number says. Straight from series, for their number.
TEST(DiffTruth, SlowNoiseMakesNoFalseAlarms) {
  const int pairs = Runs(60, 200);
  for (const std::size_t steps : {20, 60, 200})
    for (const double memory : {0.0, 0.5, 0.9, 0.95}) {
      int excluded = 0, changed = 0;
      for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(pairs); ++i) {
        const auto spread = [&](std::uint64_t seed) {
          std::vector<double> series = NoisySeries(steps, 0.005, 0.04, memory, seed);
          for (double& value : series) value *= 1e7;
          return diff::SpreadOf(series);
        };
        diff::RunSample base, now;
        for (diff::RunSample* run : {&base, &now}) {
          run->ranks = 2, run->steps = static_cast<std::int64_t>(steps), run->steps_kind = "marks";
          run->measures.push_back({"step_ns", spread(5000 + 2 * i + (run == &now))});
        }
        const auto comparison = CompareRuns(base, now);
        excluded += comparison.measures[0].difference.low > 0 || comparison.measures[0].difference.high < 0;
        changed += comparison.verdict == Verdict::kBetter || comparison.verdict == Verdict::kWorse;
      }
      RecordProperty("changed_of_" + std::to_string(steps) + "_memory_" + std::to_string(memory), changed);
      EXPECT_LE(changed, pairs * 18 / 200) << steps << " steps, memory " << memory << ": 0 outside in " << excluded;
    }
}

TEST(DiffTruth, SlowNoiseOfWholeJobs) {
  PairSpec job;
  job.slow = 0.03;
  job.memory = 0.9;
  const Counts counts = Pairs(job, job, 6000);
  EXPECT_LE(counts.better + counts.worse, kMostWrong) << counts.cannot_tell << " cannot tell";
  EXPECT_LE(counts.any_changed, kMostWrong);
}

}  // namespace
}  // namespace lockstep::test
