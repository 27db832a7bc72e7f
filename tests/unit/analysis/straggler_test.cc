#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "analysis/core/format.h"
#include "tests/unit/all_runs.h"
#include "tests/unit/analysis/synthetic_job.h"
#include "trace/file/strings.h"

namespace lockstep::test {
namespace {

const analysis::Finding* Find(const analysis::Analysis& analysis, std::string_view id) {
  for (const analysis::Finding& finding : analysis.findings)
    if (analysis::KindOf(finding.id).name == id) return &finding;
  return nullptr;
}

// Healthy compute of 40 ms with 1 % noise, one rank slower.
JobSpec Slowed(int rank, double factor, std::uint64_t seed, double noise = 0.01) {
  JobSpec spec;
  spec.compute = [=](int step, int r) {
    Noise random(seed * 1000003 + static_cast<std::uint64_t>(step) * 64 + static_cast<std::uint64_t>(r));
    const double ns = 40e6 * (1 + noise * random.Next()) * (r == rank ? factor : 1);
    return static_cast<std::int64_t>(ns);
  };
  return spec;
}

struct Case {
  int rank;
  double factor;
  bool blocking;
  Moves moves;
};
class SlowRank : public testing::TestWithParam<Case> {};

TEST_P(SlowRank, IsNamedFirstAndPricedAtWhatItCosts) {
  const auto [rank, factor, blocking, moves] = GetParam();
  const auto runs = static_cast<std::uint64_t>(Runs(1, 3));
  for (std::uint64_t seed = 1; seed <= runs; ++seed) {
    JobSpec slow = Slowed(rank, factor, seed), healthy = Slowed(rank, 1, seed);
    slow.blocking = healthy.blocking = blocking;
    slow.moves = healthy.moves = moves;
    const Job job = Simulate(slow);
    const analysis::Analysis analysis = job.Analyze();
    ASSERT_EQ(analysis.stragglers.size(), 1u) << "seed " << seed;
    EXPECT_EQ(analysis.stragglers[0].rank, rank);
    EXPECT_EQ(analysis.stragglers[0].kind, analysis::StragglerKind::kPersistent);
    EXPECT_EQ(analysis.stragglers[0].cause, analysis::CauseId::kCompute);
    EXPECT_LT(analysis.stragglers[0].p_value, 0.01);
    EXPECT_TRUE(analysis.verdict.starts_with("Rank " + std::to_string(rank) + " holds everyone back"))
        << analysis.verdict;
    const double truth = static_cast<double>(job.MeanStep(2) - Simulate(healthy).MeanStep(2));
    EXPECT_NEAR(static_cast<double>(*analysis.stragglers[0].saves_ns_per_step), truth, 0.15 * truth) << "seed " << seed;
    EXPECT_NEAR(analysis.ranks[static_cast<std::size_t>(rank)].straggler_score.value(), std::log(factor), 0.02);
  }
}
INSTANTIATE_TEST_SUITE_P(All, SlowRank,
                         testing::Values(Case{0, 1.1, false, Moves::kAtOnce}, Case{1, 1.3, false, Moves::kAtOnce},
                                         Case{2, 2.0, false, Moves::kAtOnce}, Case{3, 1.3, true, Moves::kAtOnce},
                                         Case{2, 1.1, true, Moves::kAtOnce}, Case{1, 1.1, false, Moves::kOnlyInWait},
                                         Case{0, 2.0, false, Moves::kOnlyInWait}));

TEST(Straggler, FivePercentOnOneOfEight) {
  JobSpec spec = Slowed(5, 1.05, 7, 0.004);
  spec.ranks = 8;
  const analysis::Analysis analysis = Simulate(spec).Analyze();
  ASSERT_EQ(analysis.stragglers.size(), 1u);
  EXPECT_EQ(analysis.stragglers[0].rank, 5);
}

// Slower ranks and by what; 1 % noise on all.
JobSpec SlowedSet(int ranks, const std::map<int, double>& factors, std::uint64_t seed, double noise = 0.01) {
  JobSpec spec;
  spec.ranks = ranks;
  spec.ranks_per_node = 4;
  spec.compute = [=](int step, int r) {
    Noise random(seed * 1000003 + static_cast<std::uint64_t>(step) * 4096 + static_cast<std::uint64_t>(r));
    const auto factor = factors.find(r);
    return static_cast<std::int64_t>(40e6 * (1 + noise * random.Next()) *
                                     (factor == factors.end() ? 1 : factor->second));
  };
  return spec;
}

struct SetCase {
  int ranks;
  std::map<int, double> factors;
  std::string names;
};
class SlowSet : public testing::TestWithParam<SetCase> {};

// Each is named, priced at what it would cost alone; together they cost what healing all of them gains.
TEST_P(SlowSet, IsNamedWhole) {
  const SetCase& expected = GetParam();
  const auto runs = static_cast<std::uint64_t>(Runs(1, 3));
  for (std::uint64_t seed = 1; seed <= runs; ++seed) {
    JobSpec slow = SlowedSet(expected.ranks, expected.factors, seed), healthy = SlowedSet(expected.ranks, {}, seed);
    slow.steps = healthy.steps = 30;
    const Job job = Simulate(slow);
    const analysis::Analysis analysis = job.Analyze();
    std::set<int> named;
    for (const analysis::Straggler& straggler : analysis.stragglers) {
      named.insert(straggler.rank);
      EXPECT_EQ(straggler.kind, analysis::StragglerKind::kPersistent);
      EXPECT_EQ(straggler.cause, analysis::CauseId::kCompute);
      JobSpec alone = SlowedSet(expected.ranks, {{straggler.rank, expected.factors.at(straggler.rank)}}, seed);
      alone.steps = 30;
      const auto truth = static_cast<double>(Simulate(alone).MeanStep(2) - Simulate(healthy).MeanStep(2));
      EXPECT_NEAR(static_cast<double>(straggler.saves_ns), truth, 0.25 * truth + 2e5) << "rank " << straggler.rank;
    }
    std::set<int> slowed;
    for (const auto& [rank, factor] : expected.factors) slowed.insert(rank);
    EXPECT_EQ(named, slowed) << "seed " << seed;
    EXPECT_TRUE(analysis.verdict.starts_with(expected.names + " hold everyone back")) << analysis.verdict;
    ASSERT_EQ(std::count_if(analysis.findings.begin(), analysis.findings.end(),
                            [](const analysis::Finding& finding) {
                              return finding.id == analysis::FindingId::kStragglerArrival;
                            }),
              1);
    const auto truth = static_cast<double>(job.MeanStep(2) - Simulate(healthy).MeanStep(2));
    EXPECT_NEAR(static_cast<double>(*Find(analysis, "straggler.arrival")->saves_ns_per_step), truth, 0.15 * truth + 2e5)
        << "seed " << seed;
  }
}
INSTANTIATE_TEST_SUITE_P(
    All, SlowSet,
    testing::Values(SetCase{8, {{2, 1.2}, {5, 1.2}}, "Ranks 2 and 5"},                       // Equally slow.
                    SetCase{64, {{3, 1.12}, {17, 1.10}, {41, 1.14}}, "Ranks 3, 17 and 41"},  // One hides the next.
                    SetCase{8, {{4, 1.2}, {5, 1.2}, {6, 1.2}}, "node1's ranks 4-6"},         // Most of a node.
                    SetCase{32, {{1, 1.1}, {30, 1.1}}, "Ranks 1 and 30"}));

TEST(Straggler, EvenlySpreadSpeedsNameNobodyTwice) {
  // Every rank a little slower than the one before: the slowest is worth naming, not half of the job.
  std::map<int, double> factors;
  for (int r = 0; r < 16; ++r) factors[r] = 1 + 0.002 * r;
  const analysis::Analysis analysis = Simulate(SlowedSet(16, factors, 4, 0.001)).Analyze();
  for (const analysis::Straggler& straggler : analysis.stragglers) EXPECT_GE(straggler.rank, 8);
  EXPECT_LE(analysis.stragglers.size(), 4u);
}

TEST(Straggler, OfTwoRanksTheSlower) {
  JobSpec spec = Slowed(1, 1.2, 3);
  spec.ranks = 2;
  const analysis::Analysis analysis = Simulate(spec).Analyze();
  ASSERT_EQ(analysis.stragglers.size(), 1u);
  EXPECT_EQ(analysis.stragglers[0].rank, 1);
  EXPECT_TRUE(analysis.verdict.starts_with("Rank 1 holds the other back")) << analysis.verdict;
}

// Noise large enough that waiting itself is worth a finding.
TEST(Straggler, HealthyRunsNameNobody) {
  const int runs = Runs(50, 1000);
  int alarms = 0;
  for (int run = 1; run <= runs; ++run) {
    const auto seed = static_cast<std::uint64_t>(run);
    JobSpec spec = Slowed(0, 1, seed, 0.05);
    spec.ranks = seed % 3 == 0 ? 2 : seed % 3 == 1 ? 4 : 8;
    spec.steps = 40;
    spec.buckets = 2;
    const analysis::Analysis analysis = Simulate(spec).Analyze(false);
    alarms += !analysis.stragglers.empty();
    EXPECT_EQ(analysis.verdict.find("Rank ") != std::string::npos, !analysis.stragglers.empty()) << analysis.verdict;
  }
  EXPECT_LE(alarms, runs * 18 / 1000);
}

TEST(Straggler, HealthyRunsOfManyRanksNameNobody) {
  const int runs = Runs(4, 100);
  int alarms = 0;
  for (int run = 1; run <= runs; ++run) {
    JobSpec spec = SlowedSet(96, {}, static_cast<std::uint64_t>(run), 0.05);
    spec.steps = 22;
    spec.buckets = 2;
    alarms += !Simulate(spec).Analyze(false).stragglers.empty();
  }
  EXPECT_LE(alarms, runs / 25);
}

TEST(Straggler, FivePercentOfEightIsFoundInNearlyAllRuns) {
  const int runs = Runs(10, 200);
  int found = 0, others = 0;
  for (int run = 1; run <= runs; ++run) {
    JobSpec spec = SlowedSet(8, {{5, 1.05}}, static_cast<std::uint64_t>(run), 0.01);
    spec.steps = 32;
    spec.buckets = 2;
    for (const analysis::Straggler& straggler : Simulate(spec).Analyze().stragglers)
      (straggler.rank == 5 ? found : others) += 1;
  }
  EXPECT_GE(found, runs - runs / 50);
  EXPECT_LE(others, runs / 100);
}

// Noise that stays with a rank for several steps must not pass for a straggler.
TEST(Straggler, AutocorrelatedNoiseNamesNobody) {
  const int runs = Runs(20, 100);
  int alarms = 0;
  for (int run = 1; run <= runs; ++run) {
    std::vector<std::vector<double>> state(60, std::vector<double>(4));
    Noise random(static_cast<std::uint64_t>(run));
    for (int r = 0; r < 4; ++r)
      for (std::size_t i = 0; i < 60; ++i)
        state[i][static_cast<std::size_t>(r)] =
            (i == 0 ? 0 : 0.8 * state[i - 1][static_cast<std::size_t>(r)]) + 0.03 * random.Next();
    JobSpec spec;
    spec.compute = [&](int step, int r) {
      return static_cast<std::int64_t>(40e6 * (1 + state[static_cast<std::size_t>(step)][static_cast<std::size_t>(r)]));
    };
    alarms += !Simulate(spec).Analyze(false).stragglers.empty();
  }
  EXPECT_LE(alarms, runs / 25);
}

// Another program takes a core for some steps in a row: who lost it at the end has not become slow for good.
TEST(Straggler, TheLastStepsAloneAreNoDrift) {
  for (const int ranks : {2, 4}) {
    JobSpec spec = Slowed(1, 1, 7);
    spec.ranks = ranks;
    spec.steps = 50;
    const auto base = spec.compute;
    spec.compute = [=](int step, int r) { return base(step, r) + (r == 1 && step >= 42 ? 30'000'000 : 0); };
    for (const analysis::Straggler& each : Simulate(spec).Analyze().stragglers)
      EXPECT_NE(each.kind, analysis::StragglerKind::kDrifting) << ranks;
  }
}

TEST(Straggler, MarginsBelowTheClockErrorAreTies) {
  JobSpec spec = Slowed(2, 1.02, 1, 0.0005);
  spec.steps = 100;
  spec.clock_error_ns = 2'000'000;
  const analysis::Analysis analysis = Simulate(spec).Analyze();
  EXPECT_TRUE(analysis.stragglers.empty());
  for (const analysis::ArrivalRow& row : analysis.arrivals) {
    EXPECT_EQ(row.last, 0);
    EXPECT_EQ(row.ties, 500);
    EXPECT_EQ(row.charge_ns, 0);
  }
}

TEST(Straggler, StarvedRankIsExplainedByItsRunQueue) {
  JobSpec spec = Slowed(3, 1.5, 1);
  spec.cpu_share = [](int rank) { return rank == 3 ? 1 / 1.5 : 1.0; };
  spec.offcpu_share = [](int rank) { return rank == 3 ? 0.5 / 1.5 : 0.0; };
  const analysis::Analysis analysis = Simulate(spec).Analyze();
  ASSERT_EQ(analysis.stragglers.size(), 1u);
  EXPECT_EQ(analysis.stragglers[0].cause, analysis::CauseId::kStarved);
  // Ranks that share cores take them from each other.
  spec.allowed_cores = 2;
  const analysis::Analysis shared = Simulate(spec).Analyze();
  EXPECT_TRUE(shared.stragglers.empty());
  EXPECT_EQ(shared.run.ranks_sharing_cores, 4);
  ASSERT_NE(Find(shared, "starved"), nullptr);
}

// Each has cores of its own by its mask, but somebody else uses them: who lacks one most is the scheduler's choice.
TEST(Straggler, WhereMostRanksLackCoresTheOneThatLacksMostIsNotNamed) {
  JobSpec spec = Slowed(3, 1.5, 1);
  spec.cpu_share = [](int rank) { return rank == 3 ? 0.6 / 1.5 : 0.6; };
  spec.offcpu_share = [](int rank) { return rank == 3 ? 0.9 / 1.5 : 0.4; };
  const analysis::Analysis scarce = Simulate(spec).Analyze();
  EXPECT_TRUE(scarce.run.cores_scarce);
  EXPECT_TRUE(scarce.stragglers.empty());
  ASSERT_NE(Find(scarce, "starved"), nullptr);
  // Its own longer work is its own there, too.
  spec.cpu_share = [](int) { return 0.6; };
  spec.offcpu_share = [](int) { return 0.4; };
  const analysis::Analysis slow = Simulate(spec).Analyze();
  ASSERT_EQ(slow.stragglers.size(), 1u);
  EXPECT_EQ(slow.stragglers[0].cause, analysis::CauseId::kCompute);
}

// Late without longer compute: on shared cores that is the scheduler's doing, elsewhere the rank's.
TEST(Straggler, LatenessWithoutWorkNamesNobodyOnSharedCores) {
  JobSpec spec = Slowed(1, 1.2, 1);
  Job job = Simulate(spec);
  auto& cells = job.timeline.tables.step_ranks;
  for (std::size_t i = 0; i < cells.rows(); ++i) {
    if (cells.rank[i] != 1) continue;
    const std::int64_t extra = cells.compute_ns[i] / 6;
    cells.compute_ns[i] -= extra;
    cells.idle_ns[i] += extra;
  }
  EXPECT_EQ(job.Analyze().stragglers.size(), 1u);
  for (auto& cores : job.timeline.tables.ranks.allowed_cores) cores = 2;
  const analysis::Analysis shared = job.Analyze();
  EXPECT_TRUE(shared.stragglers.empty());
  EXPECT_EQ(shared.verdict.find("Rank"), std::string::npos) << shared.verdict;
}

// Two ranks that take turns at being last, one of them by a little more, and nothing in their own work tells why.
TEST(Straggler, RanksThatTakeTurnsForNoCauseOfTheirOwnHoldNobodyBack) {
  const auto named = [](std::int64_t other_late_ns) {
    JobSpec spec;
    spec.ranks = 2;
    spec.blocking = true;
    Noise noise(5);
    spec.compute = [&](int, int) { return 40'000'000 + static_cast<std::int64_t>(1e5 * noise.Next()); };
    spec.more_compute_ns = [&](int rank, int bucket) -> std::int64_t {
      return rank == 0 && bucket == 1 ? 3'000'000 : rank == 1 && bucket == 3 ? other_late_ns : 0;
    };
    Job job = Simulate(spec);
    auto& cells = job.timeline.tables.step_ranks;
    for (std::size_t i = 0; i < cells.rows(); ++i) {
      const std::int64_t late_ns = cells.rank[i] == 0 ? 3'000'000 : other_late_ns;
      cells.compute_ns[i] -= late_ns;
      cells.idle_ns[i] += late_ns;
    }
    return job.Analyze(false).stragglers;  // A replay shows that here each rank is last at its own place.
  };
  ASSERT_EQ(named(0).size(), 1u);
  EXPECT_EQ(named(0)[0].rank, 0);
  EXPECT_EQ(named(0)[0].cause, analysis::CauseId::kUnknown);
  EXPECT_EQ(named(1'000'000).size(), 1u) << "the other is last by less than half as much";
  EXPECT_TRUE(named(2'400'000).empty());
}

// Over gloo a thread sleeps while buckets are reduced, and nothing samples its CPU time in between: that of steps
// tells.
TEST(Straggler, WhereThreadsSleepInCommunicationTheCpuTimeOfStepsExplains) {
  JobSpec spec = Slowed(3, 1.5, 1);
  const auto cause_of = [&](bool asleep) {
    Job job = Simulate(spec);
    for (schema::RankTables& rank : job.ranks) rank.cpu_samples = {};
    auto& cells = job.timeline.tables.step_ranks;
    for (std::size_t i = 0; asleep && i < cells.rows(); ++i)
      cells.helper_wait_ns[i] = cells.exposed_wait_ns[i] + cells.exposed_transfer_ns[i] + cells.exposed_unsplit_ns[i];
    const analysis::Analysis analysis = job.Analyze();
    return analysis.stragglers.size() == 1 ? analysis.stragglers[0].cause : analysis::CauseId::kUnknown;
  };
  EXPECT_EQ(cause_of(true), analysis::CauseId::kCompute);
  spec.cpu_share = [](int rank) { return rank == 3 ? 1 / 1.5 : 1.0; };
  EXPECT_EQ(cause_of(true), analysis::CauseId::kWaiting);
  spec.offcpu_share = [](int rank) { return rank == 3 ? 0.5 / 1.5 : 0.0; };
  EXPECT_EQ(cause_of(true), analysis::CauseId::kStarved);
  // In calls the others may spin, for what the rank computes longer: then it is not known what they take of the CPU.
  EXPECT_EQ(cause_of(false), analysis::CauseId::kCompute);
}

// It waits for threads of its own that compute, by calls that no library sees (OpenMP).
TEST(Straggler, WhatItsOtherThreadsComputeForItIsComputing) {
  JobSpec spec = Slowed(3, 1.5, 1);
  spec.cpu_share = [](int rank) { return rank == 3 ? 1 / 1.5 : 1.0; };
  const auto evidence = [&](double others_share) {
    Job job = Simulate(spec);
    const auto& steps = job.timeline.tables.steps;
    for (std::size_t r = 0; r < job.ranks.size(); ++r)
      for (std::size_t i = 0; i < steps.rows(); ++i) {
        const auto length = static_cast<double>(steps.end_ns[i] - steps.begin_ns[i]);
        job.ranks[r].steps.Append({.index = steps.index[i],
                                   .begin_ns = steps.begin_ns[i],
                                   .end_ns = steps.end_ns[i],
                                   .complete = 1,
                                   .others_cpu_ns = r == 3 ? static_cast<std::int64_t>(others_share * length) : 0});
      }
    const analysis::Analysis analysis = job.Analyze();
    if (analysis.stragglers.size() != 1) return std::string("none");
    return std::string(analysis.stragglers[0].cause == analysis::CauseId::kCompute ? "computes: " : "") +
           analysis.findings.at(0).evidence;
  };
  EXPECT_NE(evidence(0).find("its longer compute uses no more CPU time"), std::string::npos) << evidence(0);
  const std::string computes = evidence(0.3);
  EXPECT_TRUE(computes.starts_with("computes: ")) << computes;
  EXPECT_NE(computes.find("its other threads use "), std::string::npos) << computes;
}

// Where other threads carry everything, as PyTorch's gloo does, and the training thread calls no MPI, it takes no CPU
// time in any call, whether it was seen to wait for those threads or not.
TEST(Straggler, WhereOtherThreadsCarryEverythingTheCpuTimeOfStepsIsThatOfComputing) {
  JobSpec spec = Slowed(3, 1.5, 1);
  bool torch = true;
  const auto cause_of = [&](bool own_calls) {
    Job job = Simulate(spec);
    for (schema::RankTables& rank : job.ranks) {
      rank.cpu_samples = {};
      if (torch) rank.comms.Append({.kind = schema::CommKind::kTorchGroup});
      if (own_calls) continue;
      trace::StringInterner<schema::Strings, schema::StringBytes> strings{rank.strings, rank.string_bytes};
      auto& calls = rank.mpi_calls;
      for (std::size_t i = 0; i < calls.rows(); ++i) {
        rank.ranges.Append({.begin_ns = calls.begin_ns[i],
                            .duration_ns = calls.duration_ns[i],
                            .thread = 0,
                            .name = strings.Intern("c10d::wait"),
                            .category = schema::Category::kCommunication});
        calls.thread[i] = 1;
      }
    }
    const analysis::Analysis analysis = job.Analyze(false);
    return analysis.stragglers.size() == 1 ? analysis.stragglers[0].cause : analysis::CauseId::kUnknown;
  };
  EXPECT_EQ(cause_of(false), analysis::CauseId::kCompute);
  spec.cpu_share = [](int rank) { return rank == 3 ? 1 / 1.5 : 1.0; };
  EXPECT_EQ(cause_of(false), analysis::CauseId::kWaiting);
  spec.offcpu_share = [](int rank) { return rank == 3 ? 0.5 / 1.5 : 0.0; };
  EXPECT_EQ(cause_of(false), analysis::CauseId::kStarved);
  EXPECT_EQ(cause_of(true), analysis::CauseId::kCompute) << "a call of its own may spin";
  torch = false;
  EXPECT_EQ(cause_of(false), analysis::CauseId::kCompute) << "of others than gloo it is not known";
}

TEST(Straggler, SleepingRankUsesNoMoreCpu) {
  JobSpec spec = Slowed(0, 1.5, 1);
  spec.cpu_share = [](int rank) { return rank == 0 ? 1 / 1.5 : 1.0; };
  const analysis::Analysis analysis = Simulate(spec).Analyze();
  ASSERT_EQ(analysis.stragglers.size(), 1u);
  EXPECT_EQ(analysis.stragglers[0].cause, analysis::CauseId::kWaiting);
}

TEST(Straggler, DriftingHasAnOnset) {
  JobSpec spec = Slowed(1, 1, 5);
  const auto base = spec.compute;
  spec.compute = [=](int step, int r) { return base(step, r) + (r == 1 && step >= 40 ? 12'000'000 : 0); };
  spec.steps = 100;
  const analysis::Analysis analysis = Simulate(spec).Analyze();
  ASSERT_EQ(analysis.stragglers.size(), 1u);
  EXPECT_EQ(analysis.stragglers[0].kind, analysis::StragglerKind::kDrifting);
  EXPECT_NEAR(static_cast<double>(analysis.stragglers[0].onset_step.value()), 40, 2);
}

// Its price is of the steps since then, which may be longer than the mean of all: no share exceeds what it is of.
TEST(Straggler, LateDriftIsPricedOfTheStepsSinceThen) {
  JobSpec spec = Slowed(1, 1, 5);
  const auto base = spec.compute;
  spec.compute = [=](int step, int r) { return base(step, r) + (r == 1 && step >= 85 ? 900'000'000 : 0); };
  spec.steps = 102;
  for (const bool replay : {false, true}) {
    const analysis::Analysis analysis = Simulate(spec).Analyze(replay);
    ASSERT_EQ(analysis.stragglers.size(), 1u);
    EXPECT_EQ(analysis.stragglers[0].kind, analysis::StragglerKind::kDrifting);
    EXPECT_EQ(analysis.impossible_findings, 0);
    ASSERT_FALSE(analysis.findings.empty());
    const analysis::Finding& finding = analysis.findings[0];
    ASSERT_EQ(finding.rank, 1);
    EXPECT_GT(*finding.saves_ns_per_step, *analysis.summary.step_ns_mean);
    EXPECT_LT(*finding.saves_ns_per_step, *finding.of_step_ns);
    EXPECT_NEAR(static_cast<double>(*finding.of_step_ns), 0.94e9, 0.02e9);
    EXPECT_NE(analysis.verdict.find(analysis::Duration(*finding.of_step_ns)), std::string::npos) << analysis.verdict;
  }
}

TEST(Straggler, TransientIsPricedByItsMean) {
  JobSpec spec = Slowed(1, 1, 5, 0.002);
  const auto base = spec.compute;
  spec.compute = [=](int step, int r) { return base(step, r) + (r == 2 && step % 4 == 1 ? 20'000'000 : 0); };
  spec.steps = 102;
  const analysis::Analysis analysis = Simulate(spec).Analyze();
  ASSERT_EQ(analysis.stragglers.size(), 1u);
  EXPECT_EQ(analysis.stragglers[0].kind, analysis::StragglerKind::kTransient);
  EXPECT_NEAR(static_cast<double>(*analysis.stragglers[0].saves_ns_per_step), 5e6, 0.75e6);
}

// What a few steps hold may be more than most of them take: it is a part of their mean.
TEST(Straggler, CostsMoreThanTheMedianStep) {
  JobSpec spec = Slowed(1, 1, 5, 0.002);
  const auto base = spec.compute;
  spec.compute = [=](int step, int r) {
    return base(step, r) + (r == 2 && Noise(static_cast<std::uint64_t>(step) * 7919).Next() > 0.3 ? 400'000'000 : 0);
  };
  spec.steps = 102;
  const analysis::Analysis analysis = Simulate(spec).Analyze();
  ASSERT_EQ(analysis.findings.size(), 1u);
  const std::int64_t price = *analysis.findings[0].saves_ns_per_step;
  EXPECT_GT(price, *analysis.summary.job_step_ns_median);
  EXPECT_LT(price, *analysis.summary.step_ns_mean);
  EXPECT_NEAR(static_cast<double>(price), static_cast<double>(analysis.summary.terms.exposed_wait_ns) * 4 / 3, 3e6)
      << "three of four ranks wait";
  EXPECT_NE(analysis.remarks[0].find(" steps take "), std::string::npos) << analysis.remarks[0];
}

// Late in twelve of every twenty steps, in a row: neighbouring steps are alike.
TEST(Straggler, TransientInBursts) {
  JobSpec spec = Slowed(1, 1, 5, 0.003);
  const auto base = spec.compute;
  spec.compute = [=](int step, int r) {
    return base(step, r) + (r == 1 && step % 20 >= 5 && step % 20 < 17 ? 15'000'000 : 0);
  };
  spec.steps = 200;
  spec.buckets = 1;
  const analysis::Analysis analysis = Simulate(spec).Analyze();
  ASSERT_EQ(analysis.stragglers.size(), 1u);
  EXPECT_EQ(analysis.stragglers[0].rank, 1);
  EXPECT_EQ(analysis.stragglers[0].kind, analysis::StragglerKind::kTransient);
}

TEST(Straggler, WithoutStepsASliceOfTheRunIsTheUnit) {
  JobSpec spec = Slowed(2, 1.4, 1);
  spec.mark_steps = false;
  const analysis::Analysis analysis = Simulate(spec).Analyze();
  ASSERT_EQ(analysis.stragglers.size(), 1u);
  EXPECT_EQ(analysis.stragglers[0].rank, 2);
  EXPECT_FALSE(analysis.stragglers[0].saves_ns_per_step.has_value());
  EXPECT_TRUE(analysis.verdict.starts_with("Rank 2 holds everyone back")) << analysis.verdict;
}

// A molecular dynamics program reduces a few bytes many times within microseconds, then computes for a second.
TEST(Straggler, WithoutStepsShortSlicesAreNotTheWhole) {
  for (const std::int64_t late_ns : {15'000, 60'000'000}) {
    JobSpec spec;
    spec.ranks = 2, spec.steps = 200, spec.buckets = 1, spec.mark_steps = false;
    spec.transfer_ns = 2'000, spec.bucket_bytes = 8, spec.clock_error_ns = 5;
    spec.compute = [=](int step, int rank) {
      const std::int64_t own = step % 10 == 0 ? 200'000'000 : 50'000 + 100 * (step % 7);
      const bool late = late_ns < 1'000'000 ? step % 10 != 0 : step % 10 == 0;
      return own + (rank == 0 && late ? late_ns : 0);
    };
    const analysis::Analysis analysis = Simulate(spec).Analyze();
    if (late_ns < 1'000'000) {
      EXPECT_TRUE(analysis.stragglers.empty()) << analysis.verdict;  // It costs 2.7 ms of 4 s.
      continue;
    }
    ASSERT_EQ(analysis.stragglers.size(), 1u) << analysis.verdict;  // 1.2 s of 5.2 s.
    EXPECT_EQ(analysis.stragglers[0].rank, 0);
    EXPECT_NEAR(analysis.findings.at(0).saves_share.value_or(0), 0.23, 0.02);
  }
}

// There is no step then that could be named.
TEST(Straggler, WithoutStepsTimesSayWhenItIsLate) {
  const auto late_in = [](int begin, int end, int period) {
    JobSpec spec = Slowed(1, 1, 5, 0.002);
    const auto base = spec.compute;
    spec.compute = [=](int step, int r) {
      return base(step, r) + (r == 2 && step % period >= begin && step % period < end ? 20'000'000 : 0);
    };
    spec.steps = 102, spec.mark_steps = false;
    return Simulate(spec).Analyze();
  };
  const auto said = [](const analysis::Analysis& analysis) {
    return analysis.findings.at(0).headline + " " + analysis.findings.at(0).evidence;
  };
  const analysis::Analysis at_times = late_in(1, 2, 4), since = late_in(50, 102, 102);
  for (const analysis::Analysis* each : {&at_times, &since}) {
    ASSERT_EQ(each->stragglers.size(), 1u) << each->verdict;
    EXPECT_EQ(said(*each).find("step"), std::string::npos) << said(*each);
    EXPECT_FALSE(each->stragglers[0].onset_step || each->stragglers[0].first_step);
  }
  EXPECT_NE(said(at_times).find("; at times only"), std::string::npos) << said(at_times);
  EXPECT_NE(said(since).find(" ms after the recording's begin"), std::string::npos) << said(since);
}

TEST(Straggler, UnreadableRankFilesLeaveAnUpperBound) {
  const Job job = Simulate(Slowed(2, 1.3, 1));
  analysis::AnalyzeOptions options;
  options.read_rank = [](std::int32_t) -> Result<schema::RankTables> {
    return Error{ErrorCode::kNotFound, "no such file", "", ""};
  };
  const Result<analysis::Analysis> analysis = analysis::Analyze(job.timeline, options);
  ASSERT_TRUE(analysis.ok());
  ASSERT_EQ(analysis.value().stragglers.size(), 1u);
  EXPECT_TRUE(analysis.value().findings[0].upper_bound);
}

}  // namespace
}  // namespace lockstep::test
