#include "analysis/replay/graph/interference.h"

#include <gtest/gtest.h>

#include "analysis/replay/host/host_run.h"

namespace lockstep::replay {
namespace {

TEST(NsByCount, SumsToTheWindow) {
  const IntervalSet a = {{0, 100}}, b = {{40, 60}, {80, 200}};
  EXPECT_EQ(NsByCount({&a, &b}, {20, 90}), (std::vector<std::int64_t>{0, 40, 30}));
  EXPECT_EQ(NsByCount({&a, &b}, {150, 250}), (std::vector<std::int64_t>{50, 50, 0}));
}

TEST(NsByCount, AWindowWithoutLengthHasNone) {
  const IntervalSet a = {{0, 100}};
  EXPECT_EQ(NsByCount({&a}, {50, 50}), (std::vector<std::int64_t>{0, 0}));
  EXPECT_EQ(NsByCount({&a}, {50, 20}), (std::vector<std::int64_t>{0, 0}));
}

constexpr std::int64_t kMillisecond = 1'000'000;

// One rank that works for 20 ms in each step. In `beside` of ten steps something moves beside 2 ms of it. Of each step
// it lacks `anyway_ns`, and `stolen_ns` more of those with a transfer.
HostRun Worked(int beside, std::int64_t anyway_ns, std::int64_t stolen_ns) {
  HostRun run;
  run.ranks = {0};
  run.stretches.resize(1);
  RankStretches& rank = run.stretches[0];
  std::vector<Interval> transfers;
  for (std::uint32_t step = 0; step < 40; ++step) {
    const std::int64_t begin_ns = step * 20 * kMillisecond, end_ns = begin_ns + 20 * kMillisecond;
    const bool moves = static_cast<int>(step % 10) < beside;
    if (moves) transfers.push_back({begin_ns + 5 * kMillisecond, begin_ns + 7 * kMillisecond});
    const std::int64_t lacked_ns = anyway_ns + (moves ? stolen_ns : 0);
    rank.training.push_back({Stretch::kStepEnd, end_ns, end_ns, {}, step});
    rank.step_cpu_ns.push_back(20 * kMillisecond - lacked_ns);
    run.steps.push_back(step);
    run.measured_step_ns.push_back(20 * kMillisecond);
  }
  run.overlap.transferring = {Normalize(std::move(transfers))};
  return run;
}

TEST(HostInterference, ComputeIsSlowedByWhatItLacksBesideTransfers) {
  // Half of the 2 ms: compute that takes 1 ms by itself takes two.
  EXPECT_NEAR(Worked(10, 0, kMillisecond).EstimateInterference().value.compute_slowdown, 1, 0.01);
  EXPECT_NEAR(Worked(5, 0, kMillisecond).EstimateInterference().value.compute_slowdown, 1, 0.01);
  EXPECT_EQ(Worked(10, 0, 0).EstimateInterference().value.compute_slowdown, 0);
}

// Other programs on the machine take as much of steps in which nothing moves.
TEST(HostInterference, WhatARankLacksAnywayIsNotTakenByTransfers) {
  EXPECT_EQ(Worked(3, kMillisecond, 0).EstimateInterference().value.compute_slowdown, 0);
  EXPECT_NEAR(Worked(3, kMillisecond, kMillisecond / 2).EstimateInterference().value.compute_slowdown, 1.0 / 3, 0.01);
  // Where something moves in every step, nothing tells one from the other.
  EXPECT_NEAR(Worked(10, kMillisecond, 0).EstimateInterference().value.compute_slowdown, 1, 0.01);
}

// Nothing moved beside work: what both may take from each other depends on the cores that there are.
TEST(HostInterference, WithoutOverlapCoresLimitWhatMayMoveBesideWork) {
  const auto possible = [](double cores, std::int64_t asleep_ns) {
    HostRun run = Worked(0, asleep_ns, 0);
    run.cores_of_rank = cores;
    const InterferenceEstimate estimate = run.EstimateInterference();
    EXPECT_FALSE(estimate.value.any());
    return std::pair(estimate.possible.compute_slowdown, estimate.possible.transfer_slowdown);
  };
  EXPECT_EQ(possible(1, 0), std::pair(1.0, 1.0)) << "they take turns";
  EXPECT_EQ(possible(2, 0), std::pair(0.0, 0.0)) << "there is a core for each";
  EXPECT_EQ(possible(1, 10 * kMillisecond), std::pair(0.0, 1.0))
      << "work that sleeps for half of the time gets its half";
  EXPECT_EQ(possible(1, 20 * kMillisecond), std::pair(0.0, 0.0)) << "on a device";
  EXPECT_EQ(possible(0, 0), std::pair(0.0, 0.0)) << "unknown";
}

TEST(HostInterference, WhatOverlapShowsIsNotAssumed) {
  HostRun run = Worked(10, 0, kMillisecond);
  run.cores_of_rank = 1;
  EXPECT_FALSE(run.EstimateInterference().possible.any());
  // Unless it may all have been sleep: a wait that nothing recorded.
  run = Worked(10, 3 * kMillisecond, 0);
  run.cores_of_rank = 1;
  run.stretches[0].step_without_core_ns.assign(run.steps.size(), 0);
  EXPECT_TRUE(run.EstimateInterference().possible.any());
}

}  // namespace
}  // namespace lockstep::replay
