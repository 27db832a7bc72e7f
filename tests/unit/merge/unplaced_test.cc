// Compute that the CPU clock contradicts.

#include "merge/timeline/unplaced.h"

#include <gtest/gtest.h>

#include "fixture.h"

namespace lockstep::merge {
namespace {

CounterCurve DelayOf(const std::vector<StepOnCpu>& steps,
                     const std::vector<std::pair<std::int64_t, std::int64_t>>& readings) {
  std::vector<Interval> windows;
  for (const StepOnCpu& step : steps) windows.push_back(step.window);
  CounterCurve delay(windows);
  for (const auto& [at, ns] : readings) delay.Add(at, ns);
  return delay;
}

TEST(Unplaced, BeyondCpuTimeWorkersAndTheRunQueue) {
  const std::vector<StepOnCpu> steps = {{{0, 100}, 90, 50, 10}, {{100, 200}, 90, 95, 0}, {{200, 300}, 80, -1, 0}};
  EXPECT_EQ(Unplaced(steps, DelayOf(steps, {{0, 0}, {100, 7}, {200, 7}, {300, 7}})),
            (std::vector<std::int64_t>{23, 0, 0}));
  EXPECT_EQ(Unplaced(steps, DelayOf(steps, {})), (std::vector<std::int64_t>{0, 0, 0})) << "no core is no sleep";
}

// Ten steps between two samples: it had no core for 60 of 300 in all, in which steps nobody knows.
TEST(Unplaced, NoMoreThanIsCertainOfStepsInARow) {
  std::vector<StepOnCpu> steps;
  for (std::int64_t i = 0; i < 10; ++i) steps.push_back({{100 * i, 100 * i + 100}, 100, i % 2 == 0 ? 40 : 100, 0});
  const std::vector<std::int64_t> unplaced = Unplaced(steps, DelayOf(steps, {{0, 1000}, {1000, 1060}}));
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(unplaced[i], i % 2 == 0 ? (60 - 6) * 240 / 270 : 0);
  // The first step begins before the samples do.
  EXPECT_EQ(Unplaced(steps, DelayOf(steps, {{50, 1000}, {1000, 1060}})),
            (std::vector<std::int64_t>{0, 0, 45, 0, 45, 0, 45, 0, 45, 0}));
}

// Which of the steps the others computed in is known to a tick of the kernel only.
TEST(Unplaced, NoMoreThanAllThreadsLeaveOfStepsInARow) {
  std::vector<StepOnCpu> steps;
  for (std::int64_t i = 0; i < 4; ++i) steps.push_back({{100 * i, 100 * i + 100}, 100, 40, 10, i < 3 ? 0 : 160});
  const CounterCurve delay = DelayOf(steps, {{0, 0}, {400, 0}});
  EXPECT_EQ(Unplaced(steps, delay), (std::vector<std::int64_t>{20, 20, 20, 20}));
  steps[3].others_ns = 240;  // As much as it was off its core.
  EXPECT_EQ(Unplaced(steps, delay), (std::vector<std::int64_t>{0, 0, 0, 0}));
  for (StepOnCpu& step : steps) step.others_ns = 10;  // The workers.
  EXPECT_EQ(Unplaced(steps, delay), (std::vector<std::int64_t>{50, 50, 50, 50}));
}

TEST(Unplaced, InTheTermsOfAStep) {
  using test::Merged;
  for (const bool carried : {true, false}) {
    Merged m(1);
    auto& rank = m[0];
    rank.Step(0, 0, 1000, true, 600);
    rank.Step(1, 1000, 2000, true, 950);
    rank.Collective(CollectiveKind::kAllReduce, 100, 400);
    rank.t.collectives.thread.back() = rank.t.mpi_calls.thread.back() = carried ? 1 : 0;
    for (const std::int64_t at : {0, 1000, 2000})
      rank.t.cpu_samples.Append({.time_ns = at, .thread = 0, .cpu_ns = -1, .run_delay_ns = at / 100});
    m.Run();
    const auto& steps = m.passed[0].step_ranks;
    EXPECT_EQ(steps.blocked_unplaced_ns[0], carried ? 390 : 0);
    EXPECT_EQ(steps.blocked_ns[0], carried ? 390 : 0);
    EXPECT_EQ(steps.blocked_unplaced_ns[1], 0) << "nobody carried anything: others may have computed";
    EXPECT_EQ(steps.compute_ns[0], carried ? 610 : 700);
    if (!carried) continue;
    EXPECT_EQ(steps.overlap_ns[0], 0) << "all of it may have been a wait for the collective";
    EXPECT_EQ(steps.overlap_high_ns[0], 300);
    EXPECT_EQ(m.terms[0].blocked_unplaced_ns, 390);
    EXPECT_EQ(m.terms[0].compute_ns, 1610);
    EXPECT_EQ(m.terms[0].overlap_high_ns - m.terms[0].overlap_ns, 300);
  }
}

// Nobody communicates for the rank: what its process's other threads computed may have been for it.
TEST(Unplaced, WhatOthersMayHaveComputedIsCompute) {
  using test::Merged;
  for (const std::int64_t others : {-1, 0, 100, 400, 5000}) {
    Merged m(1);
    auto& rank = m[0];
    rank.Step(0, 0, 1000, true, 600);
    rank.t.steps.others_cpu_ns[0] = others;
    for (const std::int64_t at : {0, 1000})
      rank.t.cpu_samples.Append({.time_ns = at, .thread = 0, .cpu_ns = -1, .run_delay_ns = at / 100});
    m.Run();
    const std::int64_t expected = others < 0 ? 0 : std::max<std::int64_t>(0, 390 - others);
    EXPECT_EQ(m.passed[0].step_ranks.blocked_unplaced_ns[0], expected) << others;
    EXPECT_EQ(m.terms[0].compute_ns, 1000 - expected) << others;
    EXPECT_EQ(m.passed[0].unexplained_ns, 0);
  }
}

// Where waits are recorded and nobody communicates for the rank, and what others computed is not known, it stays
// compute, and is counted.
TEST(Unplaced, WhatNothingExplainsIsCounted) {
  for (const bool recorded : {true, false}) {
    Merged m(1);
    auto& rank = m[0];
    rank.Step(0, 0, 1000, true, 600);
    if (recorded) rank.Blocked(schema::BlockedKind::kSleep, 100, 350);
    for (const std::int64_t at : {0, 1000})
      rank.t.cpu_samples.Append({.time_ns = at, .thread = 0, .cpu_ns = -1, .run_delay_ns = 0});
    m.Run();
    EXPECT_EQ(m.passed[0].unexplained_ns, recorded ? 150 : 0);
    EXPECT_EQ(m.passed[0].step_ranks.blocked_unplaced_ns[0], 0);
    EXPECT_EQ(m.passed[0].step_ranks.compute_ns[0], recorded ? 750 : 1000);
  }
}

}  // namespace
}  // namespace lockstep::merge
