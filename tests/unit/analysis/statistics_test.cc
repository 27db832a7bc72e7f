#include "analysis/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/analysis/synthetic_job.h"

namespace lockstep::test {
namespace {

TEST(Median, OfAnEvenNumberIsTheLower) {
  EXPECT_EQ(LowerMedian(std::vector<std::int64_t>{4, 1, 3, 2}), 2);
  EXPECT_EQ(LowerMedian(std::vector<std::int64_t>{5, 1, 3}), 3);
  EXPECT_EQ(LowerMedian(std::vector<std::int64_t>{}), 0);
  EXPECT_EQ(LowerQuantile({10, 20, 30, 40, 50}, 0.99), 40);
  EXPECT_EQ(LowerQuantile({10, 20, 30, 40, 50}, 0.10), 10);
}

TEST(Bootstrap, CoversTheMedianAbout95TimesOf100) {
  int covered = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    Noise noise(seed);
    std::vector<double> values(60);
    for (double& value : values) value = 7 + noise.Next();
    const auto [low, high] = BootstrapInterval(values, 1, Statistic::kMedian, seed, 400);
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
    const std::vector<double> p = LabelPermutationTest(values, 1, seed, 499);
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
  const std::vector<double> p = LabelPermutationTest(values, 1, 1);
  EXPECT_LT(p[6], 0.001);
  for (std::size_t r = 0; r < 8; ++r) {
    if (r == 6) continue;
    EXPECT_GT(p[r], 0.5);
  }
}

TEST(Blocks, GrowWithAutocorrelationAndLeaveTen) {
  Noise noise(3);
  std::vector<double> white(200), slow(200);
  for (std::size_t i = 0; i < white.size(); ++i) {
    white[i] = noise.Next();
    slow[i] = (i == 0 ? 0 : 0.9 * slow[i - 1]) + noise.Next();
  }
  EXPECT_LE(BlockLength({white}), 4u);
  EXPECT_GE(BlockLength({slow}), 10u);
  EXPECT_LE(BlockLength({slow}), 20u);
  EXPECT_EQ(BlockLength({std::vector<double>(5, 1.0)}), 1u);
}

}  // namespace
}  // namespace lockstep::test
