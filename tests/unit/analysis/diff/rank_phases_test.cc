// The rank whose phase changed is named, one change of all is one line, and noise is none.

#include "analysis/diff/rank_phases.h"

#include <gtest/gtest.h>

#include "analysis/diff/compare.h"
#include "tests/unit/analysis/diff/runs.h"

namespace lockstep::test {
namespace {

constexpr double kStepOf40Ms = 40e6;

// Backward of 20 ms and forward of 10 ms, with noise of 1 %; `factor` of a rank's backward.
std::vector<diff::RankPhase> Phases(
    int ranks, std::size_t steps, std::uint64_t seed,
    const std::function<double(int)>& factor = [](int) { return 1.0; }) {
  std::vector<diff::RankPhase> phases;
  for (int rank = 0; rank < ranks; ++rank)
    for (const auto& [name, ns] : {std::pair("forward", 10e6), {"backward", 20e6 * factor(rank)}}) {
      std::vector<double> series = NoisySeries(steps, 0.01, 0, 0, ++seed * 7919);
      for (double& value : series) value *= ns;
      phases.push_back({rank, name, true, diff::SpreadOf(series)});
    }
  return phases;
}

std::vector<diff::PhaseChange> Changes(int ranks, std::size_t steps, const std::function<double(int)>& factor) {
  return diff::CompareRankPhases(Phases(ranks, steps, 1), Phases(ranks, steps, 1000, factor),
                                 static_cast<std::int64_t>(steps), kStepOf40Ms);
}

TEST(RankPhases, TheRankWhosePhaseGrewIsNamed) {
  for (const int ranks : {1, 2, 8})
    for (const std::size_t steps : {5u, 60u}) {
      const int slow = ranks - 1;
      const auto changes = Changes(ranks, steps, [=](int rank) { return rank == slow ? 1.2 : 1; });
      ASSERT_EQ(changes.size(), 1u) << ranks << " " << steps;
      EXPECT_EQ(changes[0].rank, slow);
      EXPECT_EQ(changes[0].phase, "backward");
      EXPECT_NEAR(changes[0].now_ns - changes[0].base_ns, 4e6, 0.5e6);
      EXPECT_EQ(changes[0].common_ns, 0);
      const auto less = Changes(ranks, steps, [=](int rank) { return rank == slow ? 0.8 : 1; });
      ASSERT_EQ(less.size(), 1u) << ranks << " " << steps;
      EXPECT_LT(less[0].change.high, 0);
    }
}

TEST(RankPhases, WhatAllHaveInCommonIsOneLine) {
  const auto all = Changes(8, 60, [](int) { return 1.1; });
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].rank, -1);
  EXPECT_NEAR(all[0].change.value, 2e6, 0.2e6);
  // And one rank beyond it.
  const auto one = Changes(8, 60, [](int rank) { return rank == 3 ? 1.3 : 1.1; });
  ASSERT_EQ(one.size(), 2u);
  EXPECT_EQ(one[0].rank, 3);
  EXPECT_NEAR(one[0].change.value, 4e6, 0.4e6);
  EXPECT_NEAR(one[0].common_ns, 2e6, 0.2e6);
  EXPECT_EQ(one[1].rank, -1);
}

TEST(RankPhases, NoiseIsNoChange) {
  std::size_t named = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed)
    for (const std::size_t steps : {3u, 6u, 20u, 60u})
      named += diff::CompareRankPhases(Phases(16, steps, seed * 1000), Phases(16, steps, seed * 1000 + 500),
                                       static_cast<std::int64_t>(steps), kStepOf40Ms)
                   .size();
  EXPECT_LE(named, 2u) << "of 5120";
}

// What is less than half a percent of the step is left out, however sure.
TEST(RankPhases, LittleIsLeftOut) {
  const auto phases = [](double ns) {
    return std::vector<diff::RankPhase>{{0, "optimizer", true, {ns, ns, ns, 60}},
                                        {1, "optimizer", true, {1e6, 1e6, 1e6, 60}}};
  };
  EXPECT_EQ(diff::CompareRankPhases(phases(1e6), phases(1.19e6), 60, kStepOf40Ms).size(), 0u);
  EXPECT_EQ(diff::CompareRankPhases(phases(1e6), phases(1.21e6), 60, kStepOf40Ms).size(), 1u);
}

// Ranks, phases or ways of measuring that one run lacks are not compared.
TEST(RankPhases, OnlyWhatBothHaveIsCompared) {
  const auto base = Phases(4, 60, 1);
  EXPECT_TRUE(diff::CompareRankPhases(base, {}, 60, kStepOf40Ms).empty());
  EXPECT_TRUE(diff::CompareRankPhases({}, base, 60, kStepOf40Ms).empty());
  EXPECT_TRUE(diff::CompareRankPhases({}, {}, 0, 0).empty());
  auto host = Phases(4, 60, 1000, [](int) { return 2.0; });
  for (diff::RankPhase& row : host) row.kernels = false;
  EXPECT_TRUE(diff::CompareRankPhases(base, host, 60, kStepOf40Ms).empty());
}

TEST(RankPhases, ComparedRunsNameIt) {
  auto base = SampleRun(MakeRun({}, 1), "base"), now = SampleRun(MakeRun({}, 2), "new");
  const auto sure = [](double ns) { return diff::Spread{ns, ns, ns, 60}; };
  for (int rank = 0; rank < 4; ++rank) {
    base.rank_phases.push_back({rank, "backward", true, sure(20e6)});
    now.rank_phases.push_back({rank, "backward", true, sure(rank == 3 ? 22.4e6 : 20e6)});
  }
  const auto named = [&](const diff::RunSample& before) {
    for (const diff::Cause& cause : CompareRuns(before, now).causes)
      if (cause.kind == diff::CauseKind::kRankPhase) return cause.sentence;
    return std::string();
  };
  EXPECT_EQ(named(base), "rank 3's backward (kernels) grew from 20 ms to 22.4 ms per step (+12.0 %)");
  EXPECT_EQ(named(diff::ParseBaseline(diff::BaselineJson(base), "base").value()), named(base));
}

schema::RankTables WithPhases() {
  schema::RankTables t;
  const auto range = [&](std::int64_t begin, std::int64_t end, std::uint32_t thread, std::uint8_t category) {
    t.ranges.Append({.begin_ns = begin, .duration_ns = end - begin, .thread = thread, .category = category});
  };
  t.steps.Append({.index = 0, .begin_ns = 0, .end_ns = 100, .complete = 1, .thread = 0});
  range(0, 40, 0, schema::Category::kForward);
  range(40, 90, 0, schema::Category::kBackward);
  range(70, 80, 0, schema::Category::kCommunication);
  range(50, 60, 1, schema::Category::kOptimizer);
  return t;
}

std::map<std::string, double> OwnOf(const diff::PhasesOfRank& phases) {
  std::map<std::string, double> own;
  for (const diff::RankPhase& row : phases.Take(0)) own[row.phase] = row.own_ns.center;
  return own;
}

TEST(RankPhases, OnTheHostItIsTimeOutsideCommunication) {
  schema::RankTables t = WithPhases();
  t.mpi_calls.Append({.begin_ns = 30, .duration_ns = 15, .thread = 0});
  t.mpi_calls.Append({.begin_ns = 0, .duration_ns = 100, .thread = 1});
  diff::PhasesOfRank phases(t, 2);
  phases.AddHost({0, 85}, 0);
  phases.AddHost({85, 100}, 1);
  // Backward: 45 to 85 without 70 to 80, and 5 in the next step.
  EXPECT_EQ(OwnOf(phases), (std::map<std::string, double>{{"forward", 15.0}, {"backward", 17.5}}));
}

TEST(RankPhases, OfAGpuItIsTheKernelsLaunchedInIt) {
  schema::RankTables t = WithPhases();
  const auto kernel = [&](std::int64_t launched, std::uint32_t thread, std::uint8_t work) {
    t.api.Append({.begin_ns = launched, .duration_ns = 1, .thread = thread});
    t.kernels.Append({.begin_ns = launched + 500, .duration_ns = 100, .work = work});
  };
  kernel(10, 0, schema::Work::kCompute);
  kernel(45, 1, schema::Work::kCompute);        // Of autograd's thread, which has no range then.
  kernel(55, 1, schema::Work::kCompute);        // It has one.
  kernel(60, 0, schema::Work::kCommunication);  // Its time is the others', too.
  kernel(95, 0, schema::Work::kCompute);        // In none.
  diff::PhasesOfRank phases(t, 1);
  for (std::uint32_t row = 0; row < t.kernels.rows(); ++row) phases.AddKernel(row, row, 0);
  EXPECT_EQ(OwnOf(phases),
            (std::map<std::string, double>{{"forward", 100.0}, {"backward", 100.0}, {"optimizer", 100.0}}));
  EXPECT_TRUE(phases.Take(0)[0].kernels);
}

}  // namespace
}  // namespace lockstep::test
