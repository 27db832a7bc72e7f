// One nanosecond has one price: what a finding, its row, the list, the total and whatif say of one question agree.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>

#include "analysis/choose_findings.h"
#include "analysis/core/format.h"
#include "analysis/core/statistics.h"
#include "analysis/replay/questions/what_if.h"
#include "tests/unit/analysis/synthetic_job.h"

namespace lockstep::analysis {
namespace {

using replay::Answer;
using replay::Question;
using test::Job;
using test::JobSpec;
using test::Moves;
using test::Simulate;

constexpr std::int64_t kMs = 1'000'000;

const Finding* Find(const Analysis& analysis, FindingId id) {
  for (const Finding& finding : analysis.findings)
    if (finding.id == id) return &finding;
  return nullptr;
}

// What `lockstep whatif` says of it.
std::int64_t WhatIfGain(const Job& job, const Question& question) {
  Result<std::unique_ptr<replay::RecordedRun>> run =
      replay::ReadRun(job.timeline, {.jobs = 1, .read_rank = job.Options().read_rank});
  EXPECT_TRUE(run.ok());
  const Result<replay::WhatIf> what_if = replay::WhatIf::Make(std::move(run).value());
  EXPECT_TRUE(what_if.ok());
  const Result<Answer> answer = what_if.value().Ask(question);
  EXPECT_TRUE(answer.ok());
  return answer.ok() ? answer.value().gain_ns : -1;
}

JobSpec Noisy() {
  JobSpec spec;
  spec.steps = 30;
  spec.compute = [](int step, int rank) { return 40 * kMs + (step * 7919 + rank * 104729) % 100'000; };
  return spec;
}

TEST(Prices, AStragglerHasOne) {
  JobSpec spec = Noisy();
  spec.buckets = 8;
  // What the others wait for it is not what the step loses: its buckets come late, but some of that is hidden.
  spec.compute = [](int step, int rank) {
    return 40 * kMs + (step * 7919 + rank * 104729) % 900'000 + (rank == 2 ? 8 * kMs : 0);
  };
  const Job job = Simulate(spec);
  const Analysis analysis = job.Analyze();
  ASSERT_EQ(analysis.stragglers.size(), 1u);
  const Straggler& row = analysis.stragglers[0];
  const Finding* finding = Find(analysis, FindingId::kStragglerArrival);
  ASSERT_NE(finding, nullptr);
  const std::int64_t gain = WhatIfGain(job, {.kind = Question::kWithoutRanks, .ranks = {2}});
  EXPECT_EQ(row.priced_by, "replay");
  EXPECT_EQ(row.price_ns, gain);
  EXPECT_EQ(row.replayed_saves_ns, gain);
  EXPECT_EQ(finding->saves_ns_per_step, gain);
  EXPECT_TRUE(finding->replayed);
  EXPECT_FALSE(finding->upper_bound);
  EXPECT_NE(analysis.verdict.find(Duration(gain) + " shorter (replayed)"), std::string::npos) << analysis.verdict;
  EXPECT_EQ(analysis.verdict.find("wait"), std::string::npos) << "another price: " << analysis.verdict;
}

TEST(Prices, WithoutAReplayItIsTheWaiting) {
  JobSpec spec = Noisy();
  spec.compute = [](int step, int rank) { return 40 * kMs + step * 7919 % 100'000 + (rank == 2 ? 8 * kMs : 0); };
  const Analysis analysis = Simulate(spec).Analyze(false);
  ASSERT_EQ(analysis.stragglers.size(), 1u);
  EXPECT_EQ(analysis.stragglers[0].priced_by, "waiting");
  EXPECT_EQ(analysis.stragglers[0].price_ns, analysis.stragglers[0].saves_ns_per_step);
  EXPECT_EQ(analysis.findings[0].saves_ns_per_step, analysis.stragglers[0].saves_ns_per_step);
  EXPECT_NE(analysis.verdict.find("the other ranks wait"), std::string::npos) << analysis.verdict;
}

// Two are late alike: alone neither costs anything, and their rows say what each costs were the other on time.
TEST(Prices, OfSeveralEachIsPricedAsIfTheOthersWereOnTime) {
  JobSpec spec = Noisy();
  spec.ranks = 6;
  spec.compute = [](int step, int rank) {
    return 40 * kMs + (step * 7919 + rank * 104729) % 100'000 + (rank == 1 || rank == 4 ? 8 * kMs : 0);
  };
  const Job job = Simulate(spec);
  const Analysis analysis = job.Analyze();
  ASSERT_EQ(analysis.stragglers.size(), 2u);
  const Finding* finding = Find(analysis, FindingId::kStragglerArrival);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->saves_ns_per_step, WhatIfGain(job, {.kind = Question::kWithoutRanks, .ranks = {1, 4}}));
  for (const Straggler& row : analysis.stragglers) {
    EXPECT_EQ(row.priced_by, "replay");
    EXPECT_NEAR(static_cast<double>(*row.price_ns), 8 * kMs, 0.3 * kMs);
  }
  EXPECT_EQ(finding->evidence.find("costs"), std::string::npos) << finding->evidence;
}

// One rank loads for longer: that is this rank's lateness. Input is a finding of its own for what all have of it.
TEST(Prices, OneRanksInputIsThatRanks) {
  JobSpec spec = Noisy();
  spec.compute = [](int step, int rank) { return 20 * kMs + (step * 7919 + rank * 104729) % 100'000; };
  spec.input_ns = 3 * kMs / 2;
  spec.more_input_ns = [](int rank) { return rank == 1 ? 30 * kMs : 0; };
  const Analysis analysis = Simulate(spec).Analyze();
  const Finding* late = Find(analysis, FindingId::kStragglerArrival);
  const Finding* input = Find(analysis, FindingId::kInputBound);
  ASSERT_NE(late, nullptr);
  ASSERT_EQ(analysis.stragglers[0].cause, CauseId::kInput);
  EXPECT_NEAR(static_cast<double>(*late->saves_ns_per_step), 30 * kMs, 0.5 * kMs);
  EXPECT_EQ(late->brief, "rank 1 (node0) loads input 30 ms longer");
  ASSERT_NE(input, nullptr);
  EXPECT_NEAR(static_cast<double>(*input->saves_ns_per_step), 1.5 * kMs, 0.1 * kMs);
  EXPECT_EQ(analysis.verdict, late->headline);
  EXPECT_EQ(analysis.findings[0].id, FindingId::kStragglerArrival);
  // Together they are all input that there is, and no more than that.
  EXPECT_NE(analysis.additivity.find("Replayed together"), std::string::npos) << analysis.additivity;
  EXPECT_NE(analysis.additivity.find("31."), std::string::npos) << analysis.additivity;
}

// What all have of input is nobody's lateness, also where it is too little for a finding.
TEST(Prices, OfInputTheStragglerHasWhatIsBeyondTheOthers) {
  JobSpec spec = Noisy();
  spec.compute = [](int step, int rank) { return 20 * kMs + (step * 7919 + rank * 104729) % 100'000; };
  spec.input_ns = kMs / 2;
  spec.more_input_ns = [](int rank) { return rank == 1 ? 30 * kMs : 0; };
  const Analysis analysis = Simulate(spec).Analyze();
  ASSERT_NE(Find(analysis, FindingId::kStragglerArrival), nullptr);
  ASSERT_EQ(Find(analysis, FindingId::kInputBound), nullptr);
  std::map<std::string, std::int64_t> by_finding;
  for (const IdleCause& cause : analysis.idle_causes)
    if (cause.cause == "input") by_finding[cause.finding] += cause.ns;
  EXPECT_NEAR(static_cast<double>(by_finding["straggler.arrival"]), 30.0 * kMs / spec.ranks, 0.2 * kMs);
  EXPECT_NEAR(static_cast<double>(by_finding["input.bound"]), 0.5 * kMs, 0.1 * kMs);
}

// Two ranks wait for each other by turns, 35 ms each, and one of them has 15 ms more input. The other waits 50 ms for
// it, of which 15 go with its input: the rest is the turns', whichever rank begins.
TEST(Prices, InputOfARankThatAlsoTakesTurnsIsPricedByItself) {
  const auto made = [](std::int64_t more_input_ns, std::int64_t turn_ns) {
    JobSpec spec = Noisy();
    spec.ranks = spec.buckets = 2;
    spec.blocking = true;
    spec.input_ns = kMs / 2;
    spec.more_input_ns = [=](int rank) { return rank == 1 ? more_input_ns : 0; };
    spec.more_compute_ns = [=](int rank, int bucket) { return rank != bucket ? turn_ns : 0; };
    return Simulate(spec);
  };
  // Also where its turn gains half as much as its input.
  for (const std::int64_t turn_ns : {35 * kMs, 8 * kMs}) {
    SCOPED_TRACE(turn_ns);
    const Job job = made(15 * kMs, turn_ns), on_time = made(0, turn_ns);
    ASSERT_EQ((job.MedianStep(2) - on_time.MedianStep(2)) / kMs, 15);
    const Analysis analysis = job.Analyze();
    ASSERT_EQ(analysis.stragglers.size(), 1u) << analysis.verdict;
    EXPECT_EQ(analysis.stragglers[0].rank, 1);
    EXPECT_EQ(analysis.stragglers[0].cause, CauseId::kInput);
    EXPECT_NEAR(static_cast<double>(*analysis.stragglers[0].price_ns), 15 * kMs, 0.5 * kMs);
    EXPECT_EQ(analysis.stragglers[0].priced_by, "replay");
    const Finding* late = Find(analysis, FindingId::kStragglerArrival);
    ASSERT_NE(late, nullptr);
    EXPECT_EQ(late->saves_ns_per_step, analysis.stragglers[0].price_ns);
    EXPECT_NE(late->headline.find("with no more input than the others"), std::string::npos) << late->headline;
  }
}

// Of a part of the steps means are those of all: long steps are rarer among the replayed ones than in the run.
TEST(Prices, AReplayedStepStandsForThoseAboutAsLong) {
  JobSpec spec;
  spec.steps = 202;
  spec.compute = [](int step, int rank) {
    return (step % (step < 150 ? 4 : 12) == 0 ? 60 * kMs : 20 * kMs) + (step * 7919 + rank * 104729) % 500'000;
  };
  const Job job = Simulate(spec);
  const auto replayed = [&](std::size_t most_steps) {
    auto run = replay::ReadRun(job.timeline, {.most_steps = most_steps, .read_rank = job.Options().read_rank});
    EXPECT_TRUE(run.ok());
    Result<replay::WhatIf> what_if = replay::WhatIf::Make(std::move(run).value());
    EXPECT_TRUE(what_if.ok());
    return std::move(what_if).value();
  };
  const auto mean = static_cast<double>(job.MeanStep(spec.warmup));
  const replay::WhatIf all = replayed(1000), some = replayed(40);
  EXPECT_TRUE(all.run().step_weights.empty());
  ASSERT_EQ(some.run().step_weights.size(), 39u);
  double steps = 0;
  for (const double weight : some.run().step_weights) steps += weight;
  EXPECT_NEAR(steps, 200, 1e-6);
  EXPECT_NEAR(static_cast<double>(all.measured_step_ns()), mean, 0.01 * mean);
  EXPECT_NEAR(static_cast<double>(some.measured_step_ns()), mean, 0.01 * mean);
  EXPECT_NEAR(static_cast<double>(some.replayed_step_ns()), mean, 0.02 * mean);
  const double plain = MeanOf({some.run().measured_step_ns.begin() + 1, some.run().measured_step_ns.end()});
  EXPECT_LT(plain, 0.9 * mean) << "the last steps alone are shorter";
}

TEST(Prices, OneRankAndOneStepAreOne) {
  JobSpec spec = Noisy();
  spec.ranks = 1;
  spec.steps = spec.warmup + 1;
  spec.input_ns = 10 * kMs;
  const Analysis analysis = Simulate(spec).Analyze();
  const Finding* input = Find(analysis, FindingId::kInputBound);
  ASSERT_NE(input, nullptr);
  EXPECT_TRUE(input->headline.starts_with("The rank waits for input")) << input->headline;
  EXPECT_NE(input->evidence.find("; 1 step replayed"), std::string::npos) << input->evidence;
}

TEST(Prices, TurnsCostWhatEqualWorkGains) {
  JobSpec spec = Noisy();
  spec.compute = [](int step, int rank) { return 40 * kMs + (step % 4 == rank ? 12 * kMs : 0); };
  const Job job = Simulate(spec);
  const Analysis analysis = job.Analyze();
  const Finding* finding = Find(analysis, FindingId::kWaitTurns);
  ASSERT_NE(finding, nullptr);
  EXPECT_TRUE(finding->replayed);
  EXPECT_FALSE(finding->upper_bound);
  // The work is spread, not taken away: 52 ms become 43.
  EXPECT_NEAR(static_cast<double>(*finding->saves_ns_per_step), 9 * kMs, 0.2 * kMs);
  EXPECT_EQ(finding->saves_ns_per_step, WhatIfGain(job, {.kind = Question::kEqualRanks}));
}

TEST(Prices, WhoeverIsLastMostOftenIsTheFirstRowBehindTurns) {
  JobSpec spec = Noisy();
  spec.compute = [](int step, int rank) {
    const int late = step % 10 < 4 ? 3 : step % 10 < 7 ? 1 : step % 10 < 9 ? 2 : 0;
    return 40 * kMs + (rank == late ? 12 * kMs : 0);
  };
  const Analysis analysis = Simulate(spec).Analyze();
  const Finding* finding = Find(analysis, FindingId::kWaitTurns);
  ASSERT_NE(finding, nullptr);
  ASSERT_EQ(finding->explain.rows.size(), 4u);
  std::vector<std::int64_t> ranks, last;
  for (const auto& row : finding->explain.rows) ranks.push_back(row[0]), last.push_back(row[2]);
  EXPECT_TRUE(std::is_sorted(last.begin(), last.end(), std::greater<>()));
  EXPECT_EQ(ranks.front(), 3) << "of few collectives that the others wait for, most are for rank 3";
}

TEST(Prices, FreeTransferIsWhatTheReplayWithoutTransfersGains) {
  for (const bool blocking : {true, false}) {
    JobSpec spec = Noisy();
    spec.blocking = blocking;
    spec.transfer_ns = 3 * kMs;
    const Job job = Simulate(spec);
    const Analysis analysis = job.Analyze();
    const Finding* finding = Find(analysis, FindingId::kTransferExposed);
    ASSERT_NE(finding, nullptr) << blocking;
    const std::int64_t gain = WhatIfGain(job, {.kind = Question::kFreeCommunication});
    EXPECT_EQ(finding->saves_ns_per_step, gain);
    EXPECT_TRUE(finding->upper_bound);
    EXPECT_TRUE(finding->replayed);
    ASSERT_TRUE(analysis.overlap.has_value());
    EXPECT_EQ(analysis.overlap->t_actual_ns - analysis.overlap->t_free_comm_ns, gain);
  }
}

TEST(Prices, TogetherIsNeverMoreThanTheStepNorLessThanTheLargest) {
  JobSpec spec = Noisy();
  spec.blocking = true;
  spec.transfer_ns = 9 * kMs;
  spec.input_ns = 20 * kMs;
  spec.compute = [](int, int rank) { return 5 * kMs + (rank == 3 ? 40 * kMs : 0); };
  for (const bool replay : {true, false}) {
    const Analysis analysis = Simulate(spec).Analyze(replay);
    ASSERT_GE(analysis.findings.size(), 2u);
    EXPECT_EQ(analysis.verdict, analysis.findings[0].headline) << "the headline is the first of the list";
    const double whole = static_cast<double>(analysis.summary.terms.Sum());
    double largest = 0;
    for (const Finding& finding : analysis.findings)
      largest = std::max(largest, static_cast<double>(finding.saves_ns_per_step.value_or(0)));
    const std::size_t percent = analysis.additivity.find(" %)");
    ASSERT_NE(percent, std::string::npos) << analysis.additivity;
    const double share = std::stod(analysis.additivity.substr(analysis.additivity.rfind('(', percent) + 1)) / 100;
    EXPECT_LE(share, 1.0);
    EXPECT_GE(share, largest / whole - 0.01) << analysis.additivity;
  }
}

TEST(Prices, ABoundCountsHalfBesideWhatIsCertain) {
  Analysis analysis;
  JobSpec spec = Noisy();
  spec.blocking = true;
  spec.transfer_ns = 2 * kMs;  // 10 ms at most,
  spec.compute = [](int step, int rank) {
    return 40 * kMs + step * 7919 % 100'000 + (rank == 1 ? 7 * kMs : 0);  // and 7 ms for certain.
  };
  analysis = Simulate(spec).Analyze(false);
  ASSERT_GE(analysis.findings.size(), 2u);
  EXPECT_EQ(analysis.findings[0].id, FindingId::kStragglerArrival);
  EXPECT_EQ(analysis.verdict, analysis.findings[0].headline);
}

// No interval without width: of too few steps there is none.
TEST(Prices, FewStepsHaveNoInterval) {
  JobSpec spec = Noisy();
  spec.steps = 5;
  spec.warmup = 2;
  spec.blocking = true;
  spec.transfer_ns = 3 * kMs;
  const Analysis analysis = Simulate(spec).Analyze();
  for (const Finding& finding : analysis.findings) EXPECT_FALSE(finding.saves_interval_ns.has_value());
  for (const BucketCurvePoint& point : analysis.buckets.curve) {
    EXPECT_FALSE(point.low_ns.has_value());
    EXPECT_FALSE(point.high_ns.has_value());
  }
  EXPECT_FALSE(analysis.buckets.recommended_cap_mb.has_value());
}

TEST(Rates, OfFewInstancesThereIsNone) {
  for (const int steps : {4, 5}) {
    JobSpec spec;
    spec.steps = steps;
    spec.warmup = 0;
    spec.buckets = 1;
    spec.blocking = true;
    const Analysis analysis = Simulate(spec).Analyze(false);
    ASSERT_EQ(analysis.collectives.size(), 1u);
    EXPECT_EQ(analysis.collectives[0].busbw.has_value(), steps == 5);
    EXPECT_EQ(analysis.collectives[0].algbw.has_value(), steps == 5);
    EXPECT_TRUE(analysis.collectives[0].transfer_ns_median.has_value());
  }
}

TEST(Starved, HeadlineAndRowsAreOneQuantity) {
  JobSpec spec = Noisy();
  spec.transfer_ns = 3 * kMs;
  spec.cpu_share = [](int) { return 0.4; };
  // The median step has much of it, most steps little.
  spec.offcpu_share = [](int rank) { return 0.1 * (1 + rank); };
  const Analysis analysis = Simulate(spec).Analyze();
  const Finding* finding = Find(analysis, FindingId::kStarved);
  ASSERT_NE(finding, nullptr);
  double without = 0, span = 0;
  for (const auto& row : finding->explain.rows) {
    without += static_cast<double>(row[2]);
    span += static_cast<double>(row[4]);
    EXPECT_LE(row[2], row[1]);
  }
  EXPECT_NE(finding->headline.find(Percent(without / span)), std::string::npos) << finding->headline;
}

// Ranks that spin in MPI while a slow transfer goes on are without a core for as long as others spin there, too.
TEST(Starved, SpinningInCallsIsNotWhatTheStepIsLongBy) {
  JobSpec spec = Noisy();
  spec.blocking = true;
  spec.transfer_ns = 20 * kMs;
  spec.cpu_share = [](int) { return 0.1; };
  spec.offcpu_share = [](int) { return 0.5; };
  const Analysis analysis = Simulate(spec).Analyze();
  EXPECT_EQ(Find(analysis, FindingId::kStarved), nullptr);
  ASSERT_GE(analysis.findings.size(), 1u);
  EXPECT_EQ(analysis.findings[0].id, FindingId::kTransferExposed) << analysis.verdict;
  // Unless they share cores, which whoever spins takes from the others.
  spec.allowed_cores = 2;
  const Analysis shared = Simulate(spec).Analyze();
  const Finding* starved = Find(shared, FindingId::kStarved);
  ASSERT_NE(starved, nullptr);
  EXPECT_TRUE(starved->headline.starts_with("4 ranks share 2 cores: they wait for a core for ")) << starved->headline;
  EXPECT_EQ(starved->evidence.find("with what lies within communication"), std::string::npos) << starved->evidence;
}

TEST(Starved, WhereItDominatesItIsTheHeadlineAndNothingBesideItMisleads) {
  JobSpec spec = Noisy();
  spec.blocking = true;
  spec.transfer_ns = 2 * kMs;
  spec.cpu_share = [](int) { return 0.4; };
  spec.offcpu_share = [](int) { return 0.55; };
  spec.compute = [](int step, int rank) {
    return 40 * kMs + (step * 7919 + rank * 104729) % 100'000 + (rank == 2 ? 6 * kMs : 0);
  };
  const Analysis analysis = Simulate(spec).Analyze();
  ASSERT_GE(analysis.findings.size(), 2u);
  EXPECT_EQ(analysis.findings[0].id, FindingId::kStarved);
  EXPECT_EQ(analysis.verdict, analysis.findings[0].headline);
  for (const Finding& finding : analysis.findings) {
    const std::string text = finding.headline + finding.action;
    EXPECT_EQ(text.find("sleeps"), std::string::npos) << text;
    EXPECT_EQ(text.find("faster network"), std::string::npos) << text;
    if (WaitsForOthers(finding.id) && finding.id != FindingId::kStragglerArrival) {
      EXPECT_NE(finding.action.find("give the ranks cores"), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace lockstep::analysis
