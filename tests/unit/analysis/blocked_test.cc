// Ranks that are blocked in recorded calls of libc: what is said of it, where, and at which price.

#include <gtest/gtest.h>

#include "analysis/stacks/blocked_places.h"
#include "synthetic_job.h"

namespace lockstep::test {
namespace {

constexpr std::int64_t kOneMs = 1'000'000;

const analysis::Finding* FindingOf(const analysis::Analysis& analysis, analysis::FindingId id) {
  for (const analysis::Finding& finding : analysis.findings)
    if (finding.id == id) return &finding;
  return nullptr;
}

// Ranks that compute 40 ms in a step, of which rank 0 has `more` by which it is blocked.
JobSpec OneBlocked(std::int64_t more_ns) {
  JobSpec spec;
  spec.blocking = true;
  spec.buckets = 1;
  spec.compute = [=](int step, int rank) { return 40 * kOneMs + step % 3 * 20'000 + (rank == 0 ? more_ns : 0); };
  spec.blocked_ns = [=](int, int rank) { return rank == 0 ? more_ns : 0; };
  return spec;
}

TEST(Blocked, ALateRankIsExplainedByItsLine) {
  const analysis::Analysis analysis = Simulate(OneBlocked(10 * kOneMs)).Analyze(false);
  ASSERT_EQ(analysis.stragglers.size(), 1u);
  const analysis::Straggler& straggler = analysis.stragglers[0];
  EXPECT_EQ(straggler.rank, 0);
  EXPECT_EQ(straggler.cause, analysis::CauseId::kWaiting);
  ASSERT_TRUE(straggler.blocked);
  EXPECT_EQ(straggler.blocked->kind, "sleep");
  EXPECT_EQ(straggler.blocked->line, 32);
  EXPECT_EQ(straggler.blocked->ns_per_step, 10 * kOneMs);
  EXPECT_EQ(straggler.blocked->others_ns_per_step, 0);
  const analysis::Finding* finding = FindingOf(analysis, analysis::FindingId::kStragglerArrival);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->brief, "rank 0 (node0) sleeps 10 ms (train.py:32)");
  EXPECT_NE(finding->evidence.find("sleeps 10 ms (slow_layer, train.py:32) in a step, the others 0"), std::string::npos)
      << finding->evidence;
  EXPECT_EQ(finding->action, "take the sleep at train.py:32 out of the step");
  EXPECT_EQ(FindingOf(analysis, analysis::FindingId::kBlocked), nullptr) << "one rank's cause is the straggler's";
}

TEST(Blocked, WhatNoCallCoversIsToBeLookedFor) {
  Job job = Simulate(OneBlocked(10 * kOneMs));
  for (schema::RankTables& rank : job.ranks) rank.blocked = {};
  const analysis::Analysis analysis = job.Analyze(false);
  ASSERT_EQ(analysis.stragglers.size(), 1u);
  EXPECT_EQ(analysis.stragglers[0].cause, analysis::CauseId::kWaiting);
  EXPECT_FALSE(analysis.stragglers[0].blocked);
  const analysis::Finding* finding = FindingOf(analysis, analysis::FindingId::kStragglerArrival);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("10 ms more off the CPU, in no recorded call"), std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->action.find("look for sleeps, locks or file access"), std::string::npos) << finding->action;
}

TEST(Blocked, WhereTheOthersAreBlockedAsLongItIsNotTheCause) {
  JobSpec spec = OneBlocked(10 * kOneMs);
  spec.blocked_ns = [](int, int) { return 5 * kOneMs; };
  const analysis::Analysis analysis = Simulate(spec).Analyze(false);
  ASSERT_EQ(analysis.stragglers.size(), 1u);
  EXPECT_EQ(analysis.stragglers[0].cause, analysis::CauseId::kCompute);
  EXPECT_FALSE(analysis.stragglers[0].blocked);
}

TEST(Blocked, WithoutStepsTheCallsExplain) {
  JobSpec spec = OneBlocked(10 * kOneMs);
  spec.mark_steps = false;
  const analysis::Analysis analysis = Simulate(spec).Analyze(false);
  ASSERT_EQ(analysis.stragglers.size(), 1u);
  EXPECT_EQ(analysis.stragglers[0].cause, analysis::CauseId::kWaiting);
  ASSERT_TRUE(analysis.stragglers[0].blocked);
}

TEST(Blocked, AllRanksInEachStep) {
  JobSpec spec = OneBlocked(0);
  spec.blocked_ns = [](int, int) { return 5 * kOneMs; };
  spec.blocked_in = {schema::BlockedKind::kLock, "pthread_mutex_lock", "", "", "", 0};
  const analysis::Analysis analysis = Simulate(spec).Analyze(false);
  const analysis::Finding* finding = FindingOf(analysis, analysis::FindingId::kBlocked);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->saves_ns_per_step, 5 * kOneMs);
  EXPECT_TRUE(finding->upper_bound);
  EXPECT_NE(finding->headline.find("The ranks are blocked for 5 ms of each"), std::string::npos) << finding->headline;
  EXPECT_NE(finding->headline.find("wait for a lock (libwork.so)"), std::string::npos) << finding->headline;
  EXPECT_NE(finding->evidence.find("pthread_mutex_lock, 5 ms each"), std::string::npos) << finding->evidence;

  spec.blocked_ns = [](int, int) { return kOneMs / 10; };
  EXPECT_EQ(FindingOf(Simulate(spec).Analyze(false), analysis::FindingId::kBlocked), nullptr) << "below 1 %";
  EXPECT_EQ(FindingOf(Simulate(OneBlocked(0)).Analyze(false), analysis::FindingId::kBlocked), nullptr);
}

// A file is written every 10 steps by all: told once, with its name.
TEST(Blocked, AllRanksInEveryTenthStep) {
  JobSpec spec = OneBlocked(0);
  spec.blocked_ns = [](int step, int) { return step % 10 == 9 ? 300 * kOneMs : 0; };
  const auto compute = spec.compute;
  spec.compute = [=](int step, int rank) { return compute(step, rank) + (step % 10 == 9 ? 300 * kOneMs : 0); };
  spec.blocked_in = {schema::BlockedKind::kFile, "fsync", "/scratch/checkpoint.pt", "save", "train.py", 40};
  const analysis::Analysis analysis = Simulate(spec).Analyze(false);
  const analysis::Finding* finding = FindingOf(analysis, analysis::FindingId::kBurstPeriodic);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->headline.find("Every 10 steps"), std::string::npos) << finding->headline;
  EXPECT_NE(finding->headline.find("fsync of checkpoint.pt (save, train.py:40)"), std::string::npos)
      << finding->headline;
  EXPECT_EQ(finding->action, "write checkpoint.pt from another thread or process, less often, or to faster storage");
  EXPECT_EQ(FindingOf(analysis, analysis::FindingId::kBlocked), nullptr);
  EXPECT_TRUE(analysis.stragglers.empty());
}

// Asleep in every step, and for longer in every tenth: the bursts are not what the sleep costs.
TEST(Blocked, AllRanksInEveryStepAndLongerInEveryTenth) {
  JobSpec spec = OneBlocked(0);
  const auto blocked_ns = [](int step, int) { return (step % 10 == 9 ? 60 : 20) * kOneMs; };
  spec.blocked_ns = blocked_ns;
  const auto compute = spec.compute;
  spec.compute = [=](int step, int rank) { return compute(step, rank) + blocked_ns(step, rank); };
  const analysis::Analysis analysis = Simulate(spec).Analyze(false);
  const analysis::Finding* finding = FindingOf(analysis, analysis::FindingId::kBlocked);
  ASSERT_NE(finding, nullptr);
  EXPECT_GE(finding->saves_ns_per_step, 20 * kOneMs);
  EXPECT_NE(FindingOf(analysis, analysis::FindingId::kBurstPeriodic), nullptr);
  EXPECT_EQ(analysis.additivity.find("separate parts"), std::string::npos) << analysis.additivity;
}

// In too few steps for a period, but worth a finding.
TEST(Blocked, InSomeStepsItSaysInHowMany) {
  JobSpec spec = OneBlocked(0);
  spec.steps = 62;
  spec.blocked_ns = [](int step, int) { return step == 20 || step == 31 || step == 50 ? 30 * kOneMs : 0; };
  spec.blocked_in.kind = schema::BlockedKind::kSocket;
  spec.blocked_in.call = "recv";
  spec.blocked_in.detail = "10.0.0.2:80";
  const analysis::Analysis analysis = Simulate(spec).Analyze(false);
  const analysis::Finding* finding = FindingOf(analysis, analysis::FindingId::kBlocked);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->saves_ns_per_step, 1'500'000);
  EXPECT_NE(finding->headline.find("on average, in 3 of 60 steps: recv (10.0.0.2:80)"), std::string::npos)
      << finding->headline;
}

TEST(BlockedWords, SayWhatAndWhere) {
  analysis::BlockedAt at;
  at.kind = "file";
  at.call = "fsync";
  at.detail = "/scratch/checkpoint.pt";
  at.module = "/usr/lib/libtorch_cpu.so";
  EXPECT_EQ(Rendered(analysis::WhatAndWhere(at)), "fsync of checkpoint.pt (libtorch_cpu.so)");
  at.kind = "Python's lock (GIL)";
  at.module = "";
  at.range = "backward";
  EXPECT_EQ(Rendered(analysis::WhatAndWhere(at)), "wait for Python's lock (GIL) in backward");
  EXPECT_EQ(Rendered(analysis::DoesFor(at, 30 * kOneMs, false)), "waits 30 ms for Python's lock (GIL) in backward");
  at.kind = "sleep";
  at.function = "slow_layer", at.file = "train.py", at.line = 32;
  EXPECT_EQ(Rendered(analysis::DoesFor(at, 201 * kOneMs, false)),
            "sleeps 201 ms in backward (slow_layer, train.py:32)");
  EXPECT_EQ(Rendered(analysis::DoesFor(at, 201 * kOneMs, true)), "sleeps 201 ms (train.py:32)");
}

}  // namespace
}  // namespace lockstep::test
