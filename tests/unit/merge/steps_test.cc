// Steps: marks brought together, signatures, the clock map.

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "fixture.h"
#include "merge/timeline/assemble.h"
#include "merge/timeline/step_length.h"
#include "merge/timeline/step_rows.h"

namespace lockstep::test {
namespace {

TEST(Steps, CommonOnesAndMismatches) {
  Merged m(2);
  for (std::int64_t i = 0; i < 5; ++i) m[0].Step(i, 100 * i, 100 * i + 100, i < 4);
  for (std::int64_t i = 0; i < 5; ++i)
    if (i != 2) m[1].Step(i, 100 * i, 100 * i + 100, i < 4);
  m.Run();
  EXPECT_EQ(m.steps.common, (std::vector<std::int64_t>{0, 1, 3}));
  EXPECT_EQ(m.steps.mismatched, 1u);
  EXPECT_EQ(m.terms[0].begin_ns, 0);
  EXPECT_EQ(m.terms[0].end_ns, 400);
}

TEST(Steps, DeathIsNoMismatch) {
  Merged m(2);
  for (std::int64_t i = 0; i < 5; ++i) m[0].Step(i, 100 * i, 100 * i + 100);
  for (std::int64_t i = 0; i < 3; ++i) m[1].Step(i, 100 * i, 100 * i + 100, i < 2);
  m.cut_end = {false, true};
  m.Run();
  EXPECT_EQ(m.steps.common, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(m.steps.mismatched, 0u);
}

TEST(Steps, NumbersThatDoNotGrowAreCounted) {
  Merged m(1);
  m[0].Step(0, 0, 10), m[0].Step(1, 10, 20), m[0].Step(1, 20, 30), m[0].Step(2, 30, 40);
  m.Run();
  EXPECT_EQ(m.steps.mismatched, 1u);
  EXPECT_EQ(m.steps.common, (std::vector<std::int64_t>{0, 1, 2}));
}

TEST(Steps, JobStepIsTheMeanOfTheRanksOwn) {
  Merged m(2);
  m[0].Step(0, 0, 100), m[0].Step(1, 100, 210);
  m[1].Step(0, 5, 120), m[1].Step(1, 120, 191);
  m.offset_ns = {0, 1'000'000};  // No clock enters it.
  m.Run();
  const schema::TlSteps table = merge::JobStepTable(m.passed, m.clocks(), m.steps, merge::StepRankTable(m.passed));
  EXPECT_EQ(table.step_ns, (std::vector<std::int64_t>{(100 + 115) / 2, (110 + 71) / 2}));
  EXPECT_EQ(table.complete, (std::vector<std::uint8_t>{1, 1}));
}

TEST(Steps, TermsOfTheJobSumToItsLengthToTheNanosecond) {
  std::uint64_t state = 1;
  const auto random = [&](std::uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int64_t>((state >> 33) % below);
  };
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<merge::TermValues> ranks(static_cast<std::size_t>(1 + random(trial % 10 == 0 ? 512 : 9)));
    std::vector<std::int64_t> lengths;
    for (merge::TermValues& terms : ranks) {
      for (std::int64_t& ns : terms) ns = random(trial % 2 == 0 ? 7 : 1'000'000'007);
      lengths.push_back(std::accumulate(terms.begin(), terms.end(), std::int64_t{0}));
    }
    const merge::JobTime job = merge::MeanOfTerms(ranks);
    const auto n = static_cast<std::int64_t>(ranks.size());
    EXPECT_EQ(job.length_ns, std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}) / n);
    EXPECT_EQ(job.length_ns, merge::MeanLength(lengths));
    EXPECT_EQ(std::accumulate(job.terms.begin(), job.terms.end(), std::int64_t{0}), job.length_ns);
    for (std::size_t k = 0; k < job.terms.size(); ++k) {
      std::int64_t sum = 0;
      for (const merge::TermValues& terms : ranks) sum += terms[k];
      EXPECT_GE(job.terms[k], sum / n);
      EXPECT_LE(job.terms[k], (sum + n - 1) / n) << "nothing is given to a term that lost nothing";
    }
  }
  EXPECT_EQ(merge::MeanOfTerms({}).length_ns, -1);
}

// What the profiler's stopping made of the step under way is none.
TEST(Steps, AProfilersLastStepIsWholeIfItDidWhatStepsDo) {
  struct Case {
    std::int64_t last_ns, last_collectives;
    bool whole;
  };
  for (const Case& one : {Case{49, 0, false}, Case{4000, 1, false}, Case{9000, 2, true}, Case{400, 2, true}}) {
    Merged m(1);
    m[0].Meta("imported", "kineto");
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::int64_t length = i < 3 ? 9300 : one.last_ns;
      for (std::int64_t c = 0; c < (i < 3 ? 2 : one.last_collectives); ++c)
        m[0].Collective(CollectiveKind::kAllReduce, at + 10 + 20 * c, at + 20 + 20 * c);
      m[0].Step(i, at, at + length);
      m[0].t.steps.source.back() = merge::StepSource::kProfilerStep;
      at += length;
    }
    m.Run();
    EXPECT_EQ(m.steps.common.size(), one.whole ? 4u : 3u) << one.last_ns;
    EXPECT_EQ(m.steps.losses.size(), one.whole ? 0u : 1u);
  }
}

TEST(Steps, PeriodIsTheSmallestThatClearlyRepeats) {
  std::vector<std::uint64_t> symbols = {9, 9, 8};
  for (int i = 0; i < 10; ++i) symbols.insert(symbols.end(), {1, 2, 2, 3});
  const merge::Period period = merge::FindPeriod(symbols);
  EXPECT_EQ(period.length, 4u);
  EXPECT_EQ(period.first, 3u);
  EXPECT_EQ(period.end, 43u);
  symbols.insert(symbols.end(), {7, 7, 6, 5, 4});  // What closes a program is not part of it.
  EXPECT_EQ(merge::FindPeriod(symbols).end, 43u);
  symbols.insert(symbols.end(), {6, 5, 4, 6, 7, 4});
  EXPECT_EQ(merge::FindPeriod(symbols).length, 0u) << "not three quarters of the sequence";
  std::vector<std::uint64_t> noise;
  std::uint64_t state = 1;
  for (int i = 0; i < 200; ++i) noise.push_back((state = state * 6364136223846793005u + 1442695040888963407u) >> 60);
  EXPECT_EQ(merge::FindPeriod(noise).length, 0u);
  EXPECT_EQ(merge::FindPeriod({1, 2, 1, 2}).length, 0u);
}

TEST(Steps, SignatureFindsUnmarkedSteps) {
  Merged m(2);
  for (int r = 0; r < 2; ++r)
    for (std::int64_t i = 0; i < 8; ++i)
      for (std::int64_t b = 0; b < 3; ++b)
        m[r].Collective(CollectiveKind::kAllReduce, 1000 * i + 500 + 50 * b, 1000 * i + 530 + 50 * b,
                        100u << static_cast<unsigned>(b));
  m.Run();
  EXPECT_EQ(m.steps.source, merge::StepSource::kSignature);
  ASSERT_EQ(m.steps.ranks[0].size(), 7u);
  EXPECT_EQ(m.steps.ranks[0][0].window, (Interval{630, 1630}));
  EXPECT_EQ(m.steps.ranks[1][6].window, (Interval{6630, 7630}));
  EXPECT_EQ(m.steps.losses.size(), 0u);
}

// Two of a hundred repetitions in which most of the time passes are no steps; ten of them belong to what repeats.
TEST(Steps, WhatRepeatsHoldsTheTimeOrIsNoStep) {
  for (const int stalls : {2, 10}) {
    Merged m(2);
    for (int r = 0; r < 2; ++r)
      for (std::int64_t i = 0, at = 0; i < 100; ++i) {
        if (i % (100 / stalls) == 5) at += 200'000 / stalls;
        m[r].Collective(CollectiveKind::kAllReduce, at, at + 100, 8);
        at += 1000;
      }
    m.Run();
    EXPECT_EQ(m.steps.ranks[0].empty(), stalls == 2) << stalls;
  }
}

TEST(Steps, TurnsInTimeAreThoseThatClearlyAlternate) {
  std::mt19937 random(1);
  const auto near = [&](std::int64_t ns) { return ns + static_cast<std::int64_t>(random() % 200); };
  for (const std::vector<std::int64_t>& pattern : std::vector<std::vector<std::int64_t>>{
           {1000}, {1000, 2600}, {1000, 1000, 2600}, {1000, 2600, 1000, 3900}, {1000, 1000, 1000, 2600}}) {
    std::vector<std::int64_t> lengths_ns, moving_ns;
    for (std::size_t i = 0; i < 60; ++i) {
      lengths_ns.push_back(near(10'000));
      moving_ns.push_back(near(pattern[i % pattern.size()]));
    }
    EXPECT_EQ(merge::TurnsInTime(lengths_ns, moving_ns), pattern.size());
    EXPECT_EQ(merge::TurnsInTime(moving_ns, lengths_ns), pattern.size()) << "by either measure";
  }
  // The spread may tell, with the same middle; and too few say nothing.
  std::vector<std::int64_t> spread;
  for (std::size_t i = 0; i < 60; ++i)
    spread.push_back(10'000 + (i % 2 == 0 ? 0 : static_cast<std::int64_t>(random() % 4000) - 2000));
  EXPECT_EQ(merge::TurnsInTime(spread, spread), 2u);
  EXPECT_EQ(merge::TurnsInTime({1, 9, 1, 9, 1, 9, 1, 9}, {1, 9, 1, 9, 1, 9, 1, 9}), 1u);
  EXPECT_EQ(merge::TurnsInTime({}, {}), 1u);
  // Thousands show a difference that is no chance, and no matter.
  std::vector<std::int64_t> little;
  for (std::size_t i = 0; i < 4000; ++i)
    little.push_back(10'000 + static_cast<std::int64_t>(random() % 1000) + (i % 2 == 0 ? 0 : 100));
  EXPECT_EQ(merge::TurnsInTime(little, little), 1u);
  // Of runs that do not alternate next to none is said to.
  int wrong = 0;
  for (int run = 0; run < 500; ++run) {
    std::vector<std::int64_t> lengths_ns, moving_ns;
    for (std::size_t i = 0; i < 40; ++i) {
      lengths_ns.push_back(static_cast<std::int64_t>(random() % 5000) + 20 * static_cast<std::int64_t>(i));
      moving_ns.push_back(static_cast<std::int64_t>(random() % 5000));
    }
    wrong += merge::TurnsInTime(lengths_ns, moving_ns) != 1;
  }
  EXPECT_LE(wrong, 10);
}

// A forward and a backward pass with one collective each, of one size: the host is ahead of the GPU by a different lead
// on each rank, and the steps are the same on both.
TEST(Steps, FoundInGpuTimesTheyAreTheSameOnEachRank) {
  Merged m(2);
  for (int r = 0; r < 2; ++r) {
    std::uint32_t row = 0;
    for (std::int64_t i = 0; i < 40; ++i) {
      const std::int64_t at = 10'000 * i, moves = i % 2 == 0 ? 100 : 260;
      m[r].Kernel("gemm", at, at + 9'000, at - 30'000 * r);
      m[r].Kernel("ncclDevKernel_SendRecv", at + 9'100, at + 9'100 + moves, at + 10 - 30'000 * r, 1);
      row = m[r].Collective(CollectiveKind::kAllReduce, at + 9'100, at + 9'100 + moves);
      m[r].t.collectives.mode[row] = schema::Code(CollectiveMode::kGpu);
      m[r].t.collectives.kernel[row] = static_cast<std::uint32_t>(m[r].t.kernels.rows() - 1);
    }
    m[r].t.mpi_calls = {};
  }
  m.Run();
  EXPECT_EQ(m.steps.times, merge::StepTimes::kFoundOnGpu);
  ASSERT_EQ(m.passed[0].steps.size(), 19u);
  ASSERT_EQ(m.passed[1].steps.size(), 19u);
  for (std::size_t i = 0; i < 19; ++i) {
    EXPECT_EQ(m.passed[0].steps[i].window, m.passed[1].steps[i].window) << i;
    if (i < 18) EXPECT_EQ(m.passed[0].steps[i].window.end - m.passed[0].steps[i].window.begin, 20'000) << i;
    EXPECT_TRUE(m.passed[1].steps[i].complete) << i;
  }
}

TEST(Steps, OnesThatWereFoundMakeSense) {
  for (const std::int64_t apart : {10, 100}) {
    Merged m(2);
    for (int r = 0; r < 2; ++r) {
      std::mt19937 random(7);
      for (std::int64_t i = 0, at = 0; i < 60; ++i) {
        m[r].Collective(CollectiveKind::kAllReduce, at, at + 10, 8);
        at += random() % 3 == 0 ? 1000 : 1000 * apart;
      }
    }
    m.Run();
    EXPECT_EQ(m.steps.ranks[0].empty(), apart == 100) << apart;
  }
}

TEST(Steps, WithoutAnyTheCapturedTimeCounts) {
  Merged m(2);
  for (int r = 0; r < 2; ++r) m[r].Collective(CollectiveKind::kAllReduce, 100, 200);
  m.Run();
  EXPECT_TRUE(m.steps.ranks[0].empty());
  ASSERT_EQ(m.steps.losses.size(), 1u);
  EXPECT_EQ(m.steps.losses[0].name, "StepsUnmarked");
  EXPECT_EQ(m.terms[0].end_ns - m.terms[0].begin_ns, 200);
}

TEST(ClockMap, MonotoneAndInvertible) {
  schema::Clock clock;
  const std::int64_t base = 1'000'000'000'000;
  clock.Append({.rank = 3, .local_ns = base, .offset_ns = -base, .base_error_ns = 100, .slew_ppb = 2000});
  clock.Append({.rank = 3,
                .local_ns = base + 1'000'000'000,
                .offset_ns = -base + 50'000,
                .base_error_ns = 300,
                .slew_ppb = 1000});
  clock.Append({.rank = 3,
                .local_ns = base + 2'000'000'000,
                .offset_ns = -base - 20'000,
                .base_error_ns = 100,
                .slew_ppb = 1000});
  const merge::ClockMap map(clock, 3);
  EXPECT_EQ(map.ToCluster(base), 0);
  EXPECT_EQ(map.ToCluster(base + 500'000'000), 500'025'000);
  EXPECT_EQ(map.ToCluster(base + 3'000'000'000), 3'000'000'000 - 90'000) << "the last segment's slope goes on";
  std::int64_t before = std::numeric_limits<std::int64_t>::min();
  for (std::int64_t t = base - 500'000'000; t < base + 3'000'000'000; t += 999'983) {
    const std::int64_t cluster = map.ToCluster(t);
    EXPECT_GT(cluster, before);
    EXPECT_LE(std::abs(map.ToLocal(cluster) - t), 1);
    before = cluster;
  }
  EXPECT_EQ(map.ErrorAt(base), 100);
  EXPECT_EQ(map.ErrorAt(base + 100'000'000), 120 + 200);
  EXPECT_EQ(map.ErrorAt(base + 4'000'000'000), 100 + 2000);
  EXPECT_EQ(merge::ClockMap(clock, 9).ErrorAt(0), std::numeric_limits<std::int64_t>::max());
}

}  // namespace
}  // namespace lockstep::test
