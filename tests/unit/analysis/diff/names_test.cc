// Names that came, went or changed are told, and noise is not.

#include "analysis/diff/names.h"

#include <gtest/gtest.h>

#include "analysis/diff/compare.h"
#include "analysis/report/diff.h"
#include "tests/unit/analysis/diff/runs.h"

namespace lockstep::test {
namespace {

using diff::NameKind;
using diff::NameVerdict;

constexpr double kStepNs = 100e6;

struct NameSpec {
  std::string name;
  double launches, ns;           // Per step.
  double noise = 0.02, odd = 0;  // Of the time; launches more in a third of the steps.
};

diff::NamesSample Sample(const std::vector<NameSpec>& specs, std::size_t steps, std::uint64_t seed) {
  diff::NamesSample sample;
  sample.recorded[0] = true;
  for (const NameSpec& spec : specs) {
    std::vector<double> ns = NoisySeries(steps, spec.noise, spec.noise / 4, 0.8, seed++), launches;
    Noise random(seed * 31);
    for (double& value : ns) value *= spec.ns, launches.push_back(spec.launches + (random.Next() > 0.5 ? spec.odd : 0));
    sample.rows.push_back({NameKind::kKernel, spec.name, diff::SpreadOf(launches, analysis::Statistic::kMedian),
                           diff::SpreadOf(ns, analysis::Statistic::kMedian)});
  }
  return sample;
}

NameVerdict VerdictOf(const diff::NameChanges& changes, std::string_view name) {
  for (const diff::NameResult& row : changes.rows)
    if (row.name == name) return row.verdict;
  ADD_FAILURE() << "no row of " << name;
  return NameVerdict::kSame;
}

std::vector<NameSpec> Model(std::size_t names) {
  std::vector<NameSpec> specs;
  for (std::size_t i = 0; i < names; ++i)
    specs.push_back({"k" + std::to_string(i), static_cast<double>(1 + i % 7), kStepNs / static_cast<double>(4 + i),
                     i % 3 == 0 ? 0.15 : 0.02, i % 5 == 0 ? 1.0 : 0.0});
  return specs;
}

TEST(DiffNames, NoiseIsNoChange) {
  for (const std::size_t steps : {1u, 2u, 3u, 6u, 19u, 20u, 60u}) {
    std::size_t changed = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      // Single steps do not show that a count differs from step to step.
      std::vector<NameSpec> specs = Model(40);
      if (steps < 3)
        for (NameSpec& spec : specs) spec.odd = 0;
      const auto base = Sample(specs, steps, 1000 * seed), now = Sample(specs, steps, 1000 * seed + 500);
      for (const auto& row : CompareNames(base, now, static_cast<std::int64_t>(steps), kStepNs).rows)
        changed += row.Changed();
    }
    EXPECT_LE(changed, 2u) << "of 800 names, from " << steps << " steps";
  }
}

TEST(DiffNames, WhatChangedIsNamed) {
  for (const std::size_t steps : {3u, 6u, 60u}) {
    std::vector<NameSpec> before = Model(12), after = before;
    after[1].ns *= 1.5;
    after[2].ns /= 1.5;
    after[4].launches += 3;
    after[7].launches -= 1;
    after[8].name = "fused";
    const auto changes =
        CompareNames(Sample(before, steps, 1), Sample(after, steps, 100), static_cast<std::int64_t>(steps), kStepNs);
    EXPECT_EQ(VerdictOf(changes, "k1"), NameVerdict::kSlower) << steps;
    EXPECT_EQ(VerdictOf(changes, "k2"), NameVerdict::kFaster) << steps;
    EXPECT_EQ(VerdictOf(changes, "k4"), NameVerdict::kMore) << steps;
    EXPECT_EQ(VerdictOf(changes, "k8"), NameVerdict::kGone) << steps;
    EXPECT_EQ(VerdictOf(changes, "fused"), NameVerdict::kNew) << steps;
    EXPECT_EQ(VerdictOf(changes, "k11"), NameVerdict::kSame) << steps;
    std::size_t changed = 0;
    for (const auto& row : changes.rows) changed += row.Changed();
    EXPECT_GE(changed, 5u);
    // Those that changed come first.
    for (std::size_t i = 0; i < changed; ++i) EXPECT_TRUE(changes.rows[i].Changed());
  }
}

TEST(DiffNames, SingleStepsSayWhatCameAndWentAndNoTimes) {
  std::vector<NameSpec> before = Model(12), after = before;
  after[1].ns *= 3;
  after[4].launches += 3;
  after[8].name = "fused";
  const auto changes = CompareNames(Sample(before, 1, 1), Sample(after, 1, 100), 1, kStepNs);
  EXPECT_EQ(VerdictOf(changes, "k1"), NameVerdict::kCannotTell);
  EXPECT_EQ(VerdictOf(changes, "k4"), NameVerdict::kMore);
  EXPECT_EQ(VerdictOf(changes, "k8"), NameVerdict::kGone);
  EXPECT_EQ(VerdictOf(changes, "fused"), NameVerdict::kNew);
}

// A lower clock makes all slower; beyond that one is.
TEST(DiffNames, WhatAllHaveInCommonIsSaidOnce) {
  std::vector<NameSpec> before = Model(12), after = before;
  for (NameSpec& spec : after) spec.ns *= 1.2;
  after[1].ns *= 1.5;
  const auto changes = CompareNames(Sample(before, 60, 1), Sample(after, 60, 100), 60, kStepNs);
  EXPECT_NEAR(changes.common[0], 1.2, 0.03);
  for (const auto& row : changes.rows)
    EXPECT_EQ(row.verdict, row.name == "k1" ? NameVerdict::kSlower : NameVerdict::kSame) << row.name;
  // Of a few names it is each one's own.
  before.resize(3), after.resize(3);
  EXPECT_EQ(VerdictOf(CompareNames(Sample(before, 60, 1), Sample(after, 60, 100), 60, kStepNs), "k2"),
            NameVerdict::kSlower);
}

TEST(DiffNames, WhatHappensNowAndThenNeitherCameNorWent) {
  std::vector<NameSpec> now = Model(4);
  now.push_back({"checkpoint", 0, 0});
  const auto base = Sample(Model(4), 60, 1);
  auto with = Sample(now, 60, 100);
  std::vector<double> launches(60, 0), ns(60, 0);
  for (std::size_t i = 0; i < 60; i += 10) launches[i] = 1, ns[i] = 30e6;
  with.rows.back().launches = diff::SpreadOf(launches, analysis::Statistic::kMedian),
  with.rows.back().time_ns = diff::SpreadOf(ns, analysis::Statistic::kMedian);
  for (const auto& changes : {CompareNames(base, with, 60, kStepNs), CompareNames(with, base, 60, kStepNs)})
    for (const auto& row : changes.rows) EXPECT_FALSE(row.Changed()) << row.name;
}

TEST(DiffNames, WhatWasLeftOutDidNotGo) {
  auto base = Sample(Model(12), 60, 1), now = base;
  now.rows.pop_back();  // The shortest.
  now.more[0] = true;
  EXPECT_EQ(VerdictOf(CompareNames(base, now, 60, kStepNs), "k11"), NameVerdict::kCannotTell);
  now.more[0] = false;
  EXPECT_EQ(VerdictOf(CompareNames(base, now, 60, kStepNs), "k11"), NameVerdict::kGone);
}

TEST(DiffNames, KindsOfOneRunOnlyAreNotCompared) {
  auto base = SampleRun(MakeRun({}, 1), "base"), now = base;
  now.names = Sample(Model(4), 60, 1);
  const auto comparison = CompareRuns(base, now);
  EXPECT_TRUE(comparison.names.rows.empty());
  ASSERT_EQ(comparison.remarks.size(), 1u);
  EXPECT_EQ(comparison.remarks[0], "kernels were recorded in the new run only");
}

TEST(DiffNames, ABaselineSaysTheSame) {
  auto base = SampleRun(MakeRun({}, 1), "base"), now = base;
  std::vector<NameSpec> after = Model(12);
  after[1].ns *= 1.5;
  after[8].name = "fused";
  base.names = Sample(Model(12), 60, 1), now.names = Sample(after, 60, 100);
  const auto read = diff::ParseBaseline(diff::BaselineJson(base), "file");
  ASSERT_TRUE(read.ok());
  const auto direct = CompareRuns(base, now), through = CompareRuns(read.value(), now);
  ASSERT_EQ(direct.names.rows.size(), through.names.rows.size());
  for (std::size_t i = 0; i < direct.names.rows.size(); ++i) {
    EXPECT_EQ(direct.names.rows[i].name, through.names.rows[i].name);
    EXPECT_EQ(direct.names.rows[i].verdict, through.names.rows[i].verdict);
  }
}

}  // namespace
}  // namespace lockstep::test
