#include "analysis/core/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/analysis/synthetic_job.h"

namespace lockstep::test {
namespace {

TEST(Median, OfAnEvenNumberIsTheLower) {
  EXPECT_EQ(LowerMedian(std::vector<std::int64_t>{4, 1, 3, 2}), 2);
  EXPECT_EQ(LowerMedian(std::vector<std::int64_t>{5, 1, 3}), 3);
  EXPECT_EQ(LowerMedian(std::vector<std::int64_t>{}), 0);
  EXPECT_EQ(LowerQuantile(std::vector<std::int64_t>{10, 20, 30, 40, 50}, 0.99), 40);
  EXPECT_EQ(LowerQuantile(std::vector<std::int64_t>{10, 20, 30, 40, 50}, 0.10), 10);
}

TEST(Bootstrap, CoversTheMedianAbout95TimesOf100) {
  int covered = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    Noise noise(seed);
    std::vector<double> values(60);
    for (double& value : values) value = 7 + noise.Next();
    const auto [low, high] = analysis::BootstrapInterval(values, 1, analysis::Statistic::kMedian, seed, 400);
    covered += low <= 7 && 7 <= high;
  }
  EXPECT_GE(covered, 360);
  EXPECT_LE(covered, 398);
}

TEST(Permutation, AlarmsOfHealthyRanksKeepToTheirRate) {
  int alarms = 0;
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    Noise noise(seed);
    const std::size_t ranks = 2 + seed % 7;
    std::vector<std::vector<double>> values(40, std::vector<double>(ranks));
    for (auto& unit : values)
      for (double& value : unit) value = noise.Next();
    const std::vector<double> p = analysis::ConsistencyTest(values, 1, seed, {.rounds = 499});
    alarms += *std::min_element(p.begin(), p.end()) < 0.01;
  }
  EXPECT_LE(alarms, 18);
  EXPECT_GE(alarms, 2);  // A test that never alarms would test nothing.
}

TEST(Permutation, FindsTheOneThatIsAlwaysLater) {
  Noise noise(1);
  std::vector<std::vector<double>> values(40, std::vector<double>(8));
  for (auto& unit : values)
    for (std::size_t r = 0; r < unit.size(); ++r) unit[r] = noise.Next() + (r == 6 ? 2 : 0);
  const std::vector<double> p = analysis::ConsistencyTest(values, 1, 1);
  EXPECT_LT(p[6], 0.001);
  for (std::size_t r = 0; r < 8; ++r) {
    if (r == 6) continue;
    EXPECT_GT(p[r], 0.5);
  }
}

// So many rounds would take hours: what a bound decides takes none.
TEST(Permutation, WhatNoShuffleReachesTakesNone) {
  constexpr std::size_t kRounds = 1'000'000'000;
  for (const double larger : {0.0, 2.0}) {
    Noise noise(2);
    std::vector<std::vector<double>> values(640, std::vector<double>(256));
    for (auto& unit : values)
      for (std::size_t r = 0; r < unit.size(); ++r) unit[r] = noise.Next() + (r == 77 ? larger : 0);
    // Of what the bound does not decide one round is enough here.
    const std::vector<double> p =
        analysis::ConsistencyTest(values, 1, 1, {.rounds = kRounds, .interesting = 0, .asked = {5, 77}});
    const std::vector<double> sizes =
        analysis::RareExcessTest(values, 1, 1, {.rounds = kRounds, .interesting = 0, .asked = {5, 77}});
    EXPECT_DOUBLE_EQ(p[77], larger > 0 ? 1 / static_cast<double>(kRounds + 1) : 1);
    EXPECT_DOUBLE_EQ(sizes[77], larger > 0 ? 1 / static_cast<double>(kRounds + 1) : 1);
    EXPECT_EQ(p[5], 1);
    EXPECT_EQ(sizes[5], 1);
  }
}

// The bound may not decide what shuffles would decide in another way: the weakest effect that it decides, by shuffles.
TEST(Permutation, WhatTheBoundDecidesShufflesDecideToo) {
  constexpr std::size_t kUnits = 60, kSubjects = 6, kShuffles = 20'000;
  const auto made = [&](double larger) {
    Noise noise(9);
    std::vector<std::vector<double>> values(kUnits, std::vector<double>(kSubjects));
    for (auto& unit : values)
      for (std::size_t r = 0; r < kSubjects; ++r) unit[r] = noise.Next() + (r == 2 ? larger : 0);
    return values;
  };
  const auto decided = [&](double larger) {
    return analysis::RareExcessTest(made(larger), 1, 1, {.rounds = 100, .interesting = 0, .asked = {2}})[2] < 1;
  };
  double larger = 0;
  while (!decided(larger) && larger < 100) larger += 0.1;
  ASSERT_LT(larger, 100);
  ASSERT_GT(larger, 0.1);
  std::vector<double> cells;
  double mean = 0, observed = 0;
  for (const auto& unit : made(larger))
    for (std::size_t r = 0; r < kSubjects; ++r) {
      cells.push_back(unit[r]);
      mean += unit[r] / static_cast<double>(kUnits * kSubjects);
      observed += r == 2 ? unit[r] : 0;
    }
  observed -= mean * static_cast<double>(kUnits);
  analysis::SeededRandom random(3);
  for (std::size_t shuffle = 0; shuffle < kShuffles; ++shuffle) {
    for (std::size_t i = cells.size() - 1; i > 0; --i) std::swap(cells[i], cells[random.Below(i + 1)]);
    for (std::size_t r = 0; r < kSubjects; ++r) {
      double sum = -mean * static_cast<double>(kUnits);
      for (std::size_t u = 0; u < kUnits; ++u) sum += cells[u * kSubjects + r];
      ASSERT_LT(sum, observed) << shuffle;
    }
  }
}

TEST(Permutation, AnswersDoNotDependOnThreads) {
  Noise noise(4);
  std::vector<std::vector<double>> values(90, std::vector<double>(12));
  for (auto& unit : values)
    for (std::size_t r = 0; r < unit.size(); ++r) unit[r] = noise.Next() + (r == 6 ? 0.4 : 0);
  const std::vector<double> one = analysis::ConsistencyTest(values, 2, 1, {.rounds = 499, .jobs = 1});
  EXPECT_EQ(one, analysis::ConsistencyTest(values, 2, 1, {.rounds = 499, .jobs = 2}));
  EXPECT_LT(one[6], 0.5);
  EXPECT_EQ(analysis::BlockLength(values, 1), analysis::BlockLength(values, 2));
  EXPECT_EQ(analysis::BlockLengthApartFromShift(values, 1), analysis::BlockLengthApartFromShift(values, 2));
}

TEST(Blocks, GrowWithAutocorrelationAndLeaveTen) {
  Noise noise(3);
  std::vector<double> white(200), slow(200);
  for (std::size_t i = 0; i < white.size(); ++i) {
    white[i] = noise.Next();
    slow[i] = (i == 0 ? 0 : 0.9 * slow[i - 1]) + noise.Next();
  }
  EXPECT_LE(analysis::BlockLength({white}), 4u);
  EXPECT_GE(analysis::BlockLength({slow}), 10u);
  EXPECT_LE(analysis::BlockLength({slow}), 20u);
  EXPECT_EQ(analysis::BlockLength({std::vector<double>(5, 1.0)}), 1u);
}

// Larger from the middle on only; the rest of the time anybody.
TEST(Permutation, FindsTheOneThatIsLaterSinceTheMiddle) {
  analysis::SeededRandom random(5);
  std::vector<std::vector<double>> values(40, std::vector<double>(8));
  for (std::size_t u = 0; u < values.size(); ++u)
    for (std::size_t s = 0; s < 8; ++s) values[u][s] = random.Unit() + (s == 2 && u >= 20 ? 2 : 0);
  EXPECT_LT(analysis::ConsistencyTest(values, 1, 1)[2], 0.005);
}

// In a tenth of the units by much: their ranks say little, their sizes do. One wild unit says nothing.
TEST(Permutation, BySizeFindsTheOneThatIsLateAtTimes) {
  std::vector<std::vector<double>> values(100, std::vector<double>(8, 0.0));
  analysis::SeededRandom random(6);
  for (int i = 0; i < 12; ++i) values[random.Below(100)][random.Below(8)] = 2;
  for (std::size_t u = 3; u < 100; u += 10) values[u][5] = 10;
  EXPECT_LT(analysis::RareExcessTest(values, 1, 1)[5], 0.005);
  std::vector<std::vector<double>> once(100, std::vector<double>(8, 0.0));
  once[40][1] = 1000;
  once[70][2] = 3;
  EXPECT_GT(analysis::RareExcessTest(once, 1, 1)[1], 0.2);
}

TEST(Permutation, BySizeKeepsToItsRateWithHeavyTails) {
  int alarms = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    analysis::SeededRandom random(seed);
    std::vector<std::vector<double>> values(40, std::vector<double>(4, 0.0));
    for (auto& unit : values)
      for (double& value : unit)
        if (random.Unit() < 0.1) value = 1 / (random.Unit() + 0.01);
    const std::vector<double> p = analysis::RareExcessTest(values, 1, seed, {.rounds = 499});
    alarms += *std::min_element(p.begin(), p.end()) < 0.01;
  }
  EXPECT_LE(alarms, 11);
}

TEST(BlockLength, EqualValuesAndAChangeOfLevelAreNoCorrelation) {
  EXPECT_EQ(analysis::BlockLength({std::vector<double>(60, 1.0)}), 2u);
  analysis::SeededRandom random(3);
  std::vector<double> shifted;
  for (int i = 0; i < 60; ++i) shifted.push_back(random.Unit() + (i >= 30 ? 5 : 0));
  EXPECT_GE(analysis::BlockLength({shifted}), 5u);
  EXPECT_LE(analysis::BlockLengthApartFromShift({shifted}), 3u);
}

TEST(Paired, TellsTheSlowerOfTwo) {
  analysis::SeededRandom random(4);
  std::vector<double> slower, equal;
  for (int i = 0; i < 30; ++i) {
    equal.push_back(random.Unit() - 0.5);
    slower.push_back(random.Unit() - 0.2);
  }
  EXPECT_LT(analysis::PairedTest(slower, 1, 1), 0.01);
  EXPECT_GT(analysis::PairedTest(equal, 1, 1), 0.01);
  EXPECT_EQ(analysis::PairedTest({}, 1, 1), 1);
}

// What the lower median of the steps shows is not intermittent, and what it does not show is, in even and odd numbers.
TEST(Intermittent, IsWhatTheMedianDoesNotShow) {
  for (const std::size_t steps : {11u, 12u})
    for (std::size_t with = 0; with <= steps; ++with) {
      std::vector<std::int64_t> by_step(steps, 0);
      std::fill_n(by_step.begin(), with, 10);
      const bool shown = LowerMedian(by_step) == 10;
      EXPECT_EQ(analysis::IsIntermittent(by_step, 10), !shown && with >= 3) << with << " of " << steps;
    }
  EXPECT_FALSE(analysis::IsIntermittent({0, 10}, 10));
  EXPECT_FALSE(analysis::IsIntermittent({}, 10));
}

}  // namespace
}  // namespace lockstep::test
