#include <gtest/gtest.h>

#include <cmath>

#include "analysis/core/statistics.h"
#include "tests/unit/analysis/synthetic_job.h"

namespace lockstep::test {
namespace {

const analysis::Finding* Find(const analysis::Analysis& analysis, std::string_view id) {
  for (const analysis::Finding& finding : analysis.findings)
    if (analysis::KindOf(finding.id).name == id) return &finding;
  return nullptr;
}

TEST(Summary, TermsSumToTheStepAndRanksToTheirSpan) {
  JobSpec spec;
  spec.input_ns = 1'234'567;
  spec.compute = [](int step, int rank) { return 30'000'000 + 7919 * step + 104'729 * rank; };
  const Job job = Simulate(spec);
  const analysis::Analysis analysis = job.Analyze();
  EXPECT_TRUE(analysis.summary.per_step);
  EXPECT_EQ(analysis.summary.terms.Sum(), analysis.summary.step_ns_mean);
  EXPECT_EQ(analysis.summary.step_ns_mean, job.MeanStep(spec.warmup));
  EXPECT_EQ(analysis.summary.job_step_ns_median, job.MedianStep(spec.warmup));
  EXPECT_EQ(analysis.summary.step_ns_median, analysis.summary.job_step_ns_median);
  EXPECT_LE(*analysis.summary.job_step_ns_p10, *analysis.summary.step_ns_median);
  EXPECT_LE(*analysis.summary.job_step_ns_min, *analysis.summary.job_step_ns_p10);
  EXPECT_GE(*analysis.summary.job_step_ns_max, *analysis.summary.step_ns_median);
  ASSERT_EQ(analysis.ranks.size(), 4u);
  for (const analysis::RankRow& row : analysis.ranks) EXPECT_EQ(row.terms.Sum(), row.span_ns);
  ASSERT_EQ(analysis.steps.size(), 60u);
  for (const analysis::StepRow& step : analysis.steps)
    for (const analysis::StepCell& cell : step.ranks) EXPECT_EQ(cell.terms.Sum(), cell.end_ns - cell.begin_ns);
}

// A stall has its share of the mean, and is said beside it.
TEST(Summary, OneLongStepIsNamed) {
  JobSpec spec;
  spec.steps = 60;
  spec.compute = [](int step, int) { return step == 31 ? 1'000'000'000 : 10'000'000; };
  const Job job = Simulate(spec);
  const analysis::Analysis analysis = job.Analyze();
  EXPECT_EQ(analysis.summary.step_ns_mean, job.MeanStep(spec.warmup));
  EXPECT_GT(*analysis.summary.step_ns_mean, 2 * *analysis.summary.job_step_ns_median);
  EXPECT_EQ(analysis.summary.long_steps, 1);
  ASSERT_FALSE(analysis.remarks.empty());
  EXPECT_TRUE(analysis.remarks[0].starts_with("Step 31 takes 1")) << analysis.remarks[0];
}

// Steps of two kinds: no step is as long as the mean.
TEST(Summary, TwoGroupsOfStepsAreSaid) {
  JobSpec spec;
  spec.compute = [](int step, int) { return step % 2 == 0 ? 90'000'000 : 15'000'000; };
  const analysis::Analysis analysis = Simulate(spec).Analyze();
  EXPECT_EQ(analysis.summary.long_steps, 29);
  EXPECT_GT(*analysis.summary.long_step_ns_mean, 90'000'000);
  EXPECT_LT(*analysis.summary.other_step_ns_mean, 20'000'000);
}

TEST(Summary, NoiseAndDriftAreNoGroups) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    std::vector<std::int64_t> noise, drift, heavy;
    Noise random(seed), other(seed + 100);
    for (int i = 0; i < 200; ++i) {
      noise.push_back(static_cast<std::int64_t>(10e6 * (1 + 0.1 * random.Next())));
      drift.push_back(static_cast<std::int64_t>(10e6 * (1 + 0.005 * i)));
      heavy.push_back(static_cast<std::int64_t>(10e6 * std::exp(0.3 * other.Next())));
    }
    EXPECT_FALSE(analysis::FindTwoGroups(noise)) << seed;
    EXPECT_FALSE(analysis::FindTwoGroups(drift)) << seed;
    EXPECT_FALSE(analysis::FindTwoGroups(heavy)) << seed;
  }
}

TEST(Summary, WarmupAndIncompleteStepsStayOut) {
  JobSpec spec;
  spec.steps = 9;
  spec.warmup = 2;
  spec.compute = [](int step, int) { return step < 2 ? 500'000'000 : step == 8 ? 900'000'000 : 10'000'000; };
  Job job = Simulate(spec);
  job.timeline.tables.steps.complete[8] = 0;
  const analysis::Analysis analysis = job.Analyze();
  EXPECT_LT(*analysis.summary.job_step_ns_max, 20'000'000);
  EXPECT_EQ(analysis.summary.job_step_ns_p10, std::nullopt);
  EXPECT_EQ(analysis.run.steps, 8);
  EXPECT_EQ(analysis.run.warmup_steps, 2);
  EXPECT_EQ(analysis.run.incomplete_steps, 1);
}

TEST(Summary, QuantilesOfFewStepsAreNull) {
  for (const auto& [steps, p10, p99] :
       {std::tuple(9, false, false), {10, true, false}, {99, true, false}, {100, true, true}}) {
    JobSpec spec;
    spec.warmup = 0, spec.steps = steps;
    const analysis::Summary summary = Simulate(spec).Analyze().summary;
    EXPECT_EQ(summary.job_step_ns_p10.has_value(), p10) << steps;
    EXPECT_EQ(summary.job_step_ns_p99.has_value(), p99) << steps;
    EXPECT_TRUE(summary.job_step_ns_min && summary.job_step_ns_max) << steps;
  }
}

TEST(Summary, WindowNarrowsEverything) {
  Job job = Simulate({});
  AddMeta(job.timeline.tables, "window_first_step", "10");
  AddMeta(job.timeline.tables, "window_last_step", "29");
  const analysis::Analysis analysis = job.Analyze();
  EXPECT_EQ(analysis.run.steps, 20);
  EXPECT_EQ(analysis.steps.size(), 20u);
  ASSERT_EQ(analysis.collectives.size(), 1u);
  EXPECT_EQ(analysis.collectives[0].count, 100);
}

TEST(Collectives, CostsComeFromTheTransferAlone) {
  const analysis::Analysis analysis = Simulate({}).Analyze();
  ASSERT_EQ(analysis.collectives.size(), 1u);
  const analysis::CollectiveRow& row = analysis.collectives[0];
  EXPECT_EQ(row.op, "all-reduce");
  EXPECT_EQ(row.count, 300);
  EXPECT_EQ(row.transfer_ns_median, 400'000);
  EXPECT_DOUBLE_EQ(row.algbw.value(), 1e6 / 400e-6);
  EXPECT_DOUBLE_EQ(row.busbw.value(), 1e6 / 400e-6 * 2 * 3 / 4);
  EXPECT_EQ(row.group, (std::vector<std::int32_t>{0, 1, 2, 3}));
}

TEST(Findings, HealthyJobHasNone) {
  JobSpec spec;
  spec.transfer_ns = 50'000;
  const analysis::Analysis analysis = Simulate(spec).Analyze();
  EXPECT_TRUE(analysis.findings.empty());
  EXPECT_EQ(analysis.verdict.rfind("Nothing found that costs more than 2 % of each ", 0), 0u) << analysis.verdict;
  EXPECT_FALSE(analysis.incomplete());
}

TEST(Findings, ExposedTransferIsPricedAtWhatIsExposed) {
  JobSpec spec;
  spec.blocking = true;
  spec.transfer_ns = 2'000'000;
  const analysis::Analysis analysis = Simulate(spec).Analyze();
  const analysis::Finding* finding = Find(analysis, "transfer.exposed");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->saves_ns_per_step, 10'000'000);
  EXPECT_TRUE(finding->upper_bound);
  EXPECT_TRUE(analysis.verdict.starts_with("Communication is exposed for 10 ms of each 50 ms step"))
      << analysis.verdict;
}

TEST(Findings, BarriersMoveNothingThatCouldBeLess) {
  JobSpec spec;
  spec.blocking = true;
  const analysis::Finding* finding = nullptr;
  const auto of = [&](CollectiveKind kind) {
    Job job = Simulate(spec);
    auto& collectives = job.timeline.tables.collectives;
    std::fill(collectives.kind.begin(), collectives.kind.end(), static_cast<std::uint8_t>(kind));
    if (kind == CollectiveKind::kBarrier) std::fill(collectives.bytes.begin(), collectives.bytes.end(), 0);
    static analysis::Analysis analysis;
    analysis = job.Analyze(false);
    finding = Find(analysis, "transfer.exposed");
    ASSERT_NE(finding, nullptr);
  };
  of(CollectiveKind::kBarrier);
  EXPECT_NE(finding->evidence.find("most in 300 barriers"), std::string::npos) << finding->evidence;
  EXPECT_EQ(finding->evidence.find("0 B"), std::string::npos) << finding->evidence;
  EXPECT_EQ(finding->action.find("send less"), std::string::npos) << finding->action;
  of(CollectiveKind::kAllReduce);
  EXPECT_NE(finding->action.find("send less"), std::string::npos) << finding->action;
}

// What sets a job up may take longer than all that its steps do.
TEST(Findings, WhatMovesBeforeTheStepsIsNotWhatIsExposedInThem) {
  JobSpec spec;
  spec.blocking = true;
  Job job = Simulate(spec);
  auto& t = job.timeline.tables;
  // The first one becomes another kind, outside of steps, and slower than all others together.
  t.collectives.kind[0] = static_cast<std::uint8_t>(CollectiveKind::kAllGather);
  t.collectives.transfer_ns[0] = 10'000'000'000;
  for (std::size_t m = job.timeline.FirstMember(0); m < job.timeline.FirstMember(1); ++m)
    t.collective_ranks.step[m] = -1;
  const analysis::Analysis analysis = job.Analyze(false);
  const analysis::Finding* finding = Find(analysis, "transfer.exposed");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->evidence.find("all-gather"), std::string::npos) << finding->evidence;
  EXPECT_NE(finding->evidence.find("all-reduces of"), std::string::npos) << finding->evidence;
}

TEST(Findings, MovedOnlyInWaitClaimsNoOverlap) {
  JobSpec spec;
  spec.moves = Moves::kOnlyInWait;
  const analysis::Analysis analysis = Simulate(spec).Analyze();
  EXPECT_TRUE(analysis.wait_only);
  const analysis::Finding* finding = Find(analysis, "progress.wait_only");
  ASSERT_NE(finding, nullptr);
  // Of five transfers of 400 us the last one cannot hide.
  EXPECT_TRUE(finding->replayed);
  EXPECT_TRUE(finding->upper_bound);
  EXPECT_NEAR(static_cast<double>(*finding->saves_ns_per_step), 1'600'000, 10'000);
  EXPECT_NE(analysis.verdict.find("moved only in Wait"), std::string::npos) << analysis.verdict;
  EXPECT_EQ(analysis.summary.hidden_comm_ns, 0);
  EXPECT_EQ(Find(analysis, "transfer.exposed"), nullptr) << "one part of the step has two prices";
  EXPECT_FALSE(analysis.collectives[0].busbw.has_value());
}

TEST(Findings, TestsInBetweenAreProgress) {
  JobSpec spec;
  spec.moves = Moves::kOnlyInWait;
  Job job = Simulate(spec);
  for (schema::RankTables& rank : job.ranks) {
    for (std::size_t i = 0; i < rank.collectives.rows(); ++i)
      rank.collectives.last_incomplete_ns[i] = rank.collectives.wait_begin_ns[i] - 1000;
  }
  const analysis::Analysis analysis = job.Analyze();
  EXPECT_FALSE(analysis.wait_only);
  EXPECT_EQ(Find(analysis, "progress.wait_only"), nullptr);
}

TEST(Findings, InputBound) {
  JobSpec spec;
  spec.input_ns = 10'000'000;
  const analysis::Analysis analysis = Simulate(spec).Analyze();
  const analysis::Finding* finding = Find(analysis, "input.bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->saves_ns_per_step, 10'000'000);
}

TEST(Findings, WaitingWithoutCulpritNamesNoRank) {
  JobSpec spec;
  spec.compute = [](int step, int rank) { return 40'000'000 + (step % 4 == rank ? 12'000'000 : 0); };
  const analysis::Analysis analysis = Simulate(spec).Analyze();
  EXPECT_TRUE(analysis.stragglers.empty());
  const analysis::Finding* finding = Find(analysis, "wait.turns");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->rank, -1);
  EXPECT_EQ(analysis.verdict.find("Rank"), std::string::npos);
}

// A rank that is late by little at most times costs less than one that is late by much a few times.
TEST(Findings, TimeDecidesForWhomRanksWait) {
  JobSpec spec;
  spec.compute = [](int step, int rank) {
    return 40'000'000 + (rank == 1 ? 30'000 : 0) + (rank == 2 && step % 20 == 7 ? 120'000'000 : 0);
  };
  const analysis::Analysis analysis = Simulate(spec).Analyze();
  EXPECT_GT(analysis.arrivals[1].last, 10 * analysis.arrivals[2].last);
  const analysis::Finding* finding = Find(analysis, "wait.turns");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->headline.find("mostly for rank 2"), std::string::npos) << finding->headline;
  EXPECT_TRUE(finding->evidence.starts_with("rank 2 came last in ")) << finding->evidence;
}

// Too short to be sure, but not to say who was the last.
TEST(Findings, OneStepSaysWhoWasTheLast) {
  JobSpec spec;
  spec.steps = 1;
  spec.warmup = 0;
  spec.compute = [](int, int rank) { return rank == 3 ? 60'000'000 : 40'000'000; };
  const analysis::Analysis analysis = Simulate(spec).Analyze();
  EXPECT_TRUE(analysis.stragglers.empty());
  const analysis::Finding* finding = Find(analysis, "wait.turns");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->headline.find("rank 3 came last in 5 of 5 collectives, and 1 step cannot tell whether by chance"),
            std::string::npos)
      << finding->headline;
  EXPECT_NE(finding->brief.find("rank 3"), std::string::npos) << finding->brief;
}

// A rank that waits for one with more to do gains nothing by messages that are posted earlier.
TEST(Findings, MessagesWaitForWhoHasMoreToDo) {
  for (const bool sender : {false, true})
    for (const bool more_work : {false, true}) {
      JobSpec spec;
      spec.ranks = 2;
      if (more_work) spec.compute = [](int, int rank) { return rank == 0 ? 40'000'000 : 20'000'000; };
      Job job = Simulate(spec);
      schema::TimelineTables& tables = job.timeline.tables;
      // Rank 1 waits for rank 0 in each step.
      for (std::size_t i = 0; i < tables.step_ranks.rows(); ++i)
        if (tables.step_ranks.rank[i] == 1)
          (sender ? tables.step_ranks.late_sender_ns : tables.step_ranks.late_receiver_ns)[i] = 15'000'000;
      schema::TlP2pPairs::Row pair{.source_rank = sender ? 0 : 1, .destination_rank = sender ? 1 : 0};
      pair.messages = pair.matched = 60, pair.bytes = 60'000'000;
      (sender ? pair.late_sender_ns : pair.late_receiver_ns) = 60 * std::int64_t{15'000'000};
      (sender ? pair.late_sender_count : pair.late_receiver_count) = 60;
      tables.p2p_pairs.Append(pair);
      const analysis::Analysis analysis = job.Analyze(false);
      const analysis::Finding* found = Find(analysis, sender ? "p2p.late_sender" : "p2p.late_receiver");
      ASSERT_NE(found, nullptr) << analysis.verdict;
      EXPECT_EQ(found->rank, 0);
      EXPECT_EQ(found->evidence.find("rank 0 computes 20 ms longer than rank 1") != std::string::npos, more_work)
          << found->evidence;
      EXPECT_EQ(found->action.starts_with("give rank 0 less to do"), more_work) << found->action;
    }
}

TEST(Findings, AreAtMostFiveCostliestFirst) {
  JobSpec spec;
  spec.input_ns = 10'000'000;
  spec.transfer_ns = 1'000'000;
  spec.blocking = true;
  spec.offcpu_share = [](int) { return 0.2; };
  spec.compute = [](int, int rank) { return rank == 1 ? 60'000'000 : 40'000'000; };
  const analysis::Analysis analysis = Simulate(spec).Analyze();
  ASSERT_EQ(analysis.findings.size(), 4u);
  EXPECT_EQ(analysis.findings[0].id, analysis::FindingId::kStragglerArrival);
  EXPECT_EQ(analysis.findings[3].id, analysis::FindingId::kStarved);
  EXPECT_FALSE(analysis.findings[3].saves_ns_per_step.has_value());
  for (std::size_t i = 1; i < 3; ++i)
    EXPECT_GE(analysis.findings[i - 1].saves_ns_per_step, analysis.findings[i].saves_ns_per_step);
  EXPECT_FALSE(analysis.additivity.empty());
}

TEST(Verdict, OneRank) {
  JobSpec spec;
  spec.ranks = 1;
  const analysis::Analysis analysis = Simulate(spec).Analyze();
  EXPECT_EQ(analysis.verdict.rfind("One rank: nothing to compare", 0), 0u) << analysis.verdict;
  EXPECT_FALSE(analysis.suspicious);
}

TEST(Verdict, RanksWithoutCommunicationAreSuspicious) {
  JobSpec spec;
  spec.buckets = 0;
  spec.compute = [](int, int) { return 0; };
  spec.input_ns = 1'000'000;
  Job job = Simulate(spec);
  const auto asks = [&](const analysis::Analysis& analysis) {
    EXPECT_TRUE(analysis.suspicious);
    EXPECT_TRUE(analysis.incomplete());
    EXPECT_TRUE(analysis.verdict.starts_with("4 ranks, but no communication was recorded")) << analysis.verdict;
    return std::any_of(analysis.remarks.begin(), analysis.remarks.end(),
                       [](const std::string& remark) { return remark.starts_with("If the ranks do communicate"); });
  };
  EXPECT_TRUE(asks(job.Analyze()));
  // A loss says why.
  AddLoss(job.timeline.tables, "PreloadLost", 1, 1);
  EXPECT_FALSE(asks(job.Analyze()));
}

TEST(Verdict, AFailedJobsDifferingCollectivesComeFirst) {
  Job job = Simulate({});
  auto& t = job.timeline.tables;
  t.losses.Append({-1, Intern(t, "CollectiveMismatch"), 1, Intern(t, "first: number 36 is all-reduce of 4 bytes")});
  t.collectives.mismatch[7] = 1;
  const std::string healthy = job.Analyze().verdict;
  EXPECT_EQ(healthy.find("number 36"), std::string::npos) << "it ran to its end";
  t.ranks.exit_code[3] = -6;
  EXPECT_EQ(job.Analyze().verdict,
            "The job failed, and a collective differs in kind or size between ranks; first: number 36 is all-reduce of "
            "4 bytes. " +
                healthy);
  t.collectives.mismatch[7] = 0;
  EXPECT_EQ(job.Analyze().verdict, healthy) << "a row that repeats another contradicts nothing";
}

TEST(Verdict, MissingAndEndedRanksAreStated) {
  Job job = Simulate({});
  auto& t = job.timeline.tables;
  t.ranks.state[2] = 3;
  t.ranks.ended_early[3] = 1;
  t.ranks.exit_code[3] = -9;
  t.ranks.exit_code[0] = INT32_MIN;  // Not known.
  AddLoss(t, "RankMissing", 2, 1);
  const analysis::Analysis analysis = job.Analyze();
  EXPECT_EQ(analysis.run.ranks, 3);
  EXPECT_EQ(analysis.run.ranks_expected, 4);
  EXPECT_EQ(analysis.run.ranks_missing, std::vector<std::int32_t>{2});
  EXPECT_EQ(analysis.run.ranks_ended_early, std::vector<std::int32_t>{3});
  ASSERT_EQ(analysis.run.endings.size(), 1u);
  EXPECT_NE(analysis.run.endings[0].find("rank 3 was killed by signal 9"), std::string::npos);
  EXPECT_TRUE(analysis.verdict.starts_with(
      "3 of 4 ranks recorded: nothing is there of rank 2, and waiting for it is not seen."))
      << analysis.verdict;
  EXPECT_TRUE(analysis.incomplete());
  AddMeta(job.timeline.tables, "fact.oom_kills", "text=the memory cgroup /job counted 2 oom kills");
  EXPECT_EQ(
      job.Analyze().run.endings,
      std::vector<std::string>{"rank 3 was killed by signal 9 (Killed): the memory cgroup /job counted 2 oom kills"});
}

TEST(Verdict, WhoEndedFirstIsSaidFirst) {
  Job job = Simulate({});
  auto& ranks = job.timeline.tables.ranks;
  const std::string healthy = job.Analyze().verdict;
  std::int64_t last = -1;
  for (const std::int64_t index : job.timeline.tables.step_ranks.index) last = std::max(last, index);
  // It left with 0, and another one failed for it.
  ranks.ended_early[1] = 1;
  ranks.exit_code[1] = 0;
  ranks.exit_code[0] = 3;
  EXPECT_EQ(job.Analyze().verdict, "Rank 1 left with code 0 before the others, after step " + std::to_string(last) +
                                       "; then rank 0 exited with code 3. " + healthy);
  // It failed, and the launcher ended the other.
  ranks.exit_code[1] = 3;
  ranks.exit_code[0] = -15;
  EXPECT_EQ(job.Analyze().verdict,
            "Rank 1 exited with code 3; rank 0 was killed by signal 15 (Terminated); rank 1 ended first, after step " +
                std::to_string(last) + ". " + healthy);
  // All fail alike: nobody was first.
  ranks.ended_early[1] = 0;
  EXPECT_EQ(job.Analyze().verdict, healthy);
}

TEST(Verdict, EndingsNameTheHostWhoseRanksAreGone) {
  JobSpec spec;
  spec.ranks = 8;
  spec.ranks_per_node = 2;
  Job job = Simulate(spec);
  auto& ranks = job.timeline.tables.ranks;
  for (std::size_t r = 0; r < 8; ++r) ranks.exit_code[r] = r / 2 == 2 ? schema::kNoExitCode : -15;
  EXPECT_EQ(job.Analyze().run.endings,
            std::vector<std::string>{
                "ranks 0-3, 6 and 7 (all of node0, node1 and node3) were killed by signal 15 (Terminated)"})
      << "it may still run";
  ranks.ended_early[4] = ranks.ended_early[5] = 1;
  const analysis::Analysis analysis = job.Analyze();
  ASSERT_EQ(analysis.run.endings.size(), 2u);
  EXPECT_TRUE(analysis.run.endings[0].starts_with("ranks 4 and 5 (all of node2) exited without a status"))
      << analysis.run.endings[0];
  ranks.ended_early[5] = 0;
  EXPECT_TRUE(job.Analyze().run.endings[0].starts_with("rank 4 exited without a status"))
      << "the other rank of its host did not";
}

TEST(Analyze, RefusesTablesThatContradictThemselves) {
  Job job = Simulate({});
  job.timeline.tables.collective_ranks.collective[0] = 7;
  const Result<analysis::Analysis> result = analysis::Analyze(job.timeline, job.Options());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kMalformed);
}

TEST(Analyze, EmptyTimelineIsNoCrash) {
  const merge::Timeline timeline = merge::MakeTimeline("run", {});
  const Result<analysis::Analysis> result = analysis::Analyze(timeline, {});
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result.value().suspicious);
}

}  // namespace
}  // namespace lockstep::test
