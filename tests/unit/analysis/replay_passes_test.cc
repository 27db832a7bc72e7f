// What the passes make of replays, on jobs in memory.

#include <gtest/gtest.h>

#include <algorithm>

#include "analysis/report/json.h"
#include "tests/unit/analysis/synthetic_job.h"

namespace lockstep::analysis {
namespace {

using test::Job;
using test::JobSpec;
using test::Moves;
using test::Simulate;

constexpr std::int64_t kMs = 1'000'000;

JobSpec Slowed() {
  JobSpec spec;
  spec.steps = 30;
  spec.buckets = 8;
  spec.compute = [](int step, int rank) {
    return 40 * kMs + (step * 7919 + rank * 104729) % 100'000 + (rank == 2 ? 8 * kMs : 0);
  };
  return spec;
}

TEST(ReplayPasses, AnswersOfAJobInMemory) {
  const Job job = Simulate(Slowed());
  const Analysis analysis = job.Analyze();
  ASSERT_EQ(analysis.replay_skipped, "");
  ASSERT_TRUE(analysis.replay.has_value());
  EXPECT_LT(analysis.replay->self_error, 0.02);
  ASSERT_TRUE(analysis.overlap.has_value());
  EXPECT_LE(analysis.overlap->t_free_comm_ns, analysis.overlap->t_best_ns);
  EXPECT_LE(analysis.overlap->t_best_ns, analysis.overlap->t_actual_ns);
  ASSERT_TRUE(analysis.counterfactual.has_value());
  EXPECT_GT(analysis.counterfactual->slowdown, 1.05);
  ASSERT_EQ(analysis.counterfactual->by_rank.size(), 4u);
  ASSERT_TRUE(analysis.counterfactual->worst_ranks.has_value());
  EXPECT_NEAR(*analysis.counterfactual->worst_ranks, 1, 0.1) << "one rank is slow, and nothing else";
  EXPECT_EQ(analysis.counterfactual->last_stage, std::nullopt);
  ASSERT_EQ(analysis.stragglers.size(), 1u);
  ASSERT_TRUE(analysis.stragglers[0].replayed_saves_ns.has_value());
  EXPECT_NEAR(static_cast<double>(*analysis.stragglers[0].replayed_saves_ns), 8 * kMs, 0.5 * kMs);
  ASSERT_FALSE(analysis.delays.empty());
  EXPECT_EQ(analysis.delays[0].rank, 2);
  std::int64_t path = 0;
  for (const CriticalShare& share : analysis.critical_path) path += share.ns;
  EXPECT_NEAR(static_cast<double>(path), static_cast<double>(analysis.replay->replayed_step_ns),
              0.03 * static_cast<double>(analysis.replay->replayed_step_ns));
  EXPECT_EQ(analysis.buckets.sizes.size(), 8u);
  EXPECT_EQ(analysis.buckets.recognised_by, "sequence");
  ASSERT_FALSE(analysis.buckets.curve.empty());
  for (const BucketCurvePoint& point : analysis.buckets.curve) {
    EXPECT_LE(point.low_ns, point.predicted_step_ns);
    EXPECT_GE(point.high_ns, point.predicted_step_ns);
  }
}

JobSpec EqualSteps(int buckets, std::int64_t transfer_ns) {
  JobSpec spec;
  spec.steps = 30;
  spec.buckets = buckets;
  spec.bucket_bytes = 160'000 / static_cast<std::uint64_t>(buckets);
  spec.transfer_ns = transfer_ns;
  spec.compute = [](int step, int rank) { return 40 * kMs + (step * 7919 + rank * 104729) % 100'000; };
  return spec;
}

// Five times the bytes took a quarter of the time outside of the steps. `hidden`: the share of all communication that
// is under compute. `backward`: ranges say that there is a backward pass.
Analysis WithMoreBytesBeside(const JobSpec& spec, double hidden = 0, bool backward = false) {
  Job job = Simulate(spec);
  if (backward)
    job.timeline.tables.step_phases.Append({.index = 5, .rank = 0, .phase = schema::Phase::kBackward, .phase_ns = 1});
  schema::TlRankTotals& totals = job.timeline.tables.rank_totals;
  for (std::size_t i = 0; i < totals.rows(); ++i)
    totals.overlap_ns[i] = static_cast<std::int64_t>(hidden * static_cast<double>(totals.comm_ns[i]));
  schema::TlCollectives& collectives = job.timeline.tables.collectives;
  const auto first = static_cast<std::size_t>(std::find(collectives.step.begin(), collectives.step.end(), 0) -
                                              collectives.step.begin());
  collectives.bytes.at(first) = 800'000;
  collectives.transfer_ns.at(first) = spec.transfer_ns / 4;
  return job.Analyze();
}

const Finding* BucketsOf(const Analysis& analysis) {
  const auto found = std::find_if(analysis.findings.begin(), analysis.findings.end(),
                                  [](const Finding& finding) { return finding.id == FindingId::kBucketsCap; });
  return found == analysis.findings.end() ? nullptr : &*found;
}

// Eight gradients of 1.5 MiB in one bucket. A first bucket of 1 MiB, as DDP makes it where no cap is given, would hold
// one of them: that there is none shows that the first one follows the cap.
TEST(ReplayPasses, TheFirstBucketFollowsTheCapWhereTheRecordedOnesDo) {
  constexpr std::uint64_t kGradient = 3 << 19;
  for (const bool follows : {true, false}) {
    JobSpec spec = EqualSteps(follows ? 1 : 2, 8 * kMs);
    Job job = Simulate(spec);
    const std::vector<std::uint64_t> sizes =
        follows ? std::vector<std::uint64_t>{8 * kGradient} : std::vector<std::uint64_t>{kGradient, 7 * kGradient};
    auto& collectives = job.timeline.tables.collectives;
    std::size_t reductions = 0;
    for (std::size_t i = 0; i < collectives.rows(); ++i)
      if (static_cast<CollectiveKind>(collectives.kind[i]) == CollectiveKind::kAllReduce)
        collectives.bytes.at(i) = sizes[reductions++ % sizes.size()];
    for (std::uint32_t bucket = 0; bucket < sizes.size(); ++bucket)
      job.timeline.tables.gradient_buckets.Append({.model = 0,
                                                   .bucket = bucket,
                                                   .bytes = sizes[bucket],
                                                   .cap_bytes = std::uint64_t{1000} << 20,
                                                   .parameters = test::Intern(job.timeline.tables, "0")});
    std::string bytes = std::to_string(kGradient);
    for (int i = 1; i < 8; ++i) bytes += "," + std::to_string(kGradient);
    test::AddMeta(job.timeline.tables, "fact.gradients", "from=0\tbytes=" + bytes);
    const Analysis analysis = job.Analyze();
    EXPECT_EQ(analysis.buckets.recognised_by, "hooks");
    ASSERT_TRUE(analysis.buckets.exact_sizes);
    std::vector<std::size_t> counts;
    for (const BucketCurvePoint& point : analysis.buckets.curve) counts.push_back(point.buckets);
    EXPECT_EQ(counts, follows ? (std::vector<std::size_t>{8, 4, 3, 2, 2, 2, 2, 1})
                              : (std::vector<std::size_t>{8, 5, 4, 3, 3, 3, 2, 1}));
    // One digit is enough for the largest cap that closes a bucket of two gradients: 3 MiB.
    EXPECT_EQ(analysis.buckets.curve[1].cap_mb, 3);
  }
}

// More bytes outside of the steps took less time: what small buckets take their time for is not their size. That is
// said with what there is to gain at most, if fewer buckets took no longer each.
TEST(ReplayPasses, SmallBucketsThatAreSlowForAnotherReason) {
  const Analysis analysis = WithMoreBytesBeside(EqualSteps(8, 12 * kMs));
  EXPECT_EQ(analysis.buckets.recommended_cap_mb, std::nullopt);
  const Finding* found = BucketsOf(analysis);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->headline.rfind("Each step has 8 buckets of 20 kB", 0), 0u) << found->headline;
  EXPECT_NE(found->action.find("lockstep diff"), std::string::npos) << found->action;
  EXPECT_TRUE(found->upper_bound);
  ASSERT_TRUE(found->saves_ns_per_step.has_value());
  std::int64_t best_ns = INT64_MAX;
  for (const int buckets : {1, 2, 3, 4})
    best_ns = std::min(best_ns, Simulate(EqualSteps(buckets, 12 * kMs)).Analyze().summary.terms.Sum());
  const auto truth = static_cast<double>(analysis.summary.terms.Sum() - best_ns);
  EXPECT_NEAR(static_cast<double>(*found->saves_ns_per_step), truth, 0.1 * truth);
}

// A solver's work may need what was reduced before it.
TEST(ReplayPasses, BlockingReductionsAreOnlyPutTogetherInABackwardPass) {
  JobSpec solver = EqualSteps(8, 12 * kMs);
  solver.blocking = true;
  EXPECT_EQ(BucketsOf(WithMoreBytesBeside(solver)), nullptr);
  EXPECT_NE(BucketsOf(WithMoreBytesBeside(solver, 0, true)), nullptr);
}

// The same where it costs nothing: hidden, or the last one of them is all that is exposed, and would be of one bucket.
TEST(ReplayPasses, SlowBucketsThatFewerWouldNotMakeFaster) {
  EXPECT_EQ(BucketsOf(WithMoreBytesBeside(EqualSteps(8, kMs / 10))), nullptr);
  const Analysis last = WithMoreBytesBeside(EqualSteps(2, 2 * kMs));
  EXPECT_GT(last.summary.terms.exposed_transfer_ns, kMs);
  EXPECT_EQ(BucketsOf(last), nullptr);
  // Beside work everything takes longer, whatever its size.
  const Analysis hidden = WithMoreBytesBeside(EqualSteps(8, 12 * kMs), 0.6);
  ASSERT_EQ(hidden.ranks.at(0).overlap_fraction.has_value(), true);
  EXPECT_EQ(BucketsOf(hidden), nullptr);
}

TEST(ReplayPasses, TheSameForAnyNumberOfThreads) {
  const Job job = Simulate(Slowed());
  std::string texts[2];
  for (const unsigned jobs : {1u, 4u}) {
    AnalyzeOptions options = job.Options();
    options.jobs = jobs;
    const Result<Analysis> analysis = Analyze(job.timeline, options);
    ASSERT_TRUE(analysis.ok());
    texts[jobs == 4] = report::RenderJson(analysis.value());
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(ReplayPasses, WhatIsNotReplayedIsNullWithItsReason) {
  JobSpec spec = Slowed();
  AnalyzeOptions options;
  const Job job = Simulate(spec);
  options = job.Options();
  options.replay = false;
  const Result<Analysis> analysis = Analyze(job.timeline, options);
  ASSERT_TRUE(analysis.ok());
  EXPECT_NE(analysis.value().replay_skipped, "");
  EXPECT_FALSE(analysis.value().overlap.has_value());
  const std::string json = report::RenderJson(analysis.value());
  EXPECT_NE(json.find("\"overlap\": null"), std::string::npos);
  EXPECT_NE(json.find("\"counterfactual\": null"), std::string::npos);
  EXPECT_NE(json.find("--no-replay"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::analysis
