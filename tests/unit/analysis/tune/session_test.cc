// The decisions of `lockstep tune` on simulated jobs, of which it is known what is better.

#include "analysis/tune/session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "analysis/core/student.h"

namespace lockstep::tune {
namespace {

using analysis::SeededRandom;

// A sum of twelve uniform values: nearly normal.
double Normal(SeededRandom& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random.Unit();
  return sum;
}

struct Job {
  std::vector<double> factor;                       // Of the step, by candidate.
  double noise = 0.02;                              // Standard deviation of a run's mean step, of its logarithm.
  std::function<double(std::size_t, double)> more;  // Of the run's number and time: added to the logarithm.
  double cost_s = 5;
  std::function<End(std::size_t candidate)> end;  // kGood where it is not set.
};

struct Outcome {
  std::vector<Row> rows;
  std::vector<std::size_t> best;
  std::optional<Estimate> total;
  bool decided = false;
  double elapsed_s = 0;
  std::size_t runs = 0;
  std::string trouble;
  double most_s = INFINITY;  // The earliest end that MostLeft() named.
  double left_s = 0;         // What it said before the last run.
};

Outcome Play(const Job& job, std::vector<std::string> groups, double budget_s, std::uint64_t seed) {
  SessionOptions options;
  options.budget_s = budget_s;
  options.first_cost_s = job.cost_s;
  options.seed = seed;
  Session session(std::move(groups), options);
  SeededRandom random(seed * 7919 + 1);
  Outcome outcome;
  while (const auto in_force = session.Next(outcome.elapsed_s)) {
    RunResult result{.cost_s = job.cost_s};
    outcome.left_s = session.MostLeft(outcome.elapsed_s);
    outcome.most_s = std::min(outcome.most_s, outcome.elapsed_s + outcome.left_s);
    double log = std::log(1e8) + job.noise * Normal(random);
    if (job.more) log += job.more(outcome.runs, outcome.elapsed_s);
    for (const std::size_t i : *in_force) {
      log += std::log(job.factor[i]);
      const End end = job.end ? job.end(i) : End::kGood;
      if (end == End::kGood) continue;
      result.end = end;
      result.why = "it broke";
    }
    result.step_ns = result.end == End::kGood ? std::exp(log) : 0;
    outcome.elapsed_s += job.cost_s;
    outcome.runs += 1;
    session.Took(result);
  }
  outcome.rows = session.rows();
  outcome.best = session.best();
  outcome.total = session.total();
  outcome.decided = session.decided();
  outcome.trouble = session.trouble();
  return outcome;
}

std::vector<std::string> Apart(std::size_t count) {
  std::vector<std::string> groups;
  for (std::size_t i = 0; i < count; ++i) groups.push_back("g" + std::to_string(i));
  return groups;
}

TEST(Student, AsInTables) {
  EXPECT_NEAR(analysis::StudentQuantile(0.025, 1), 12.7062, 1e-3);
  EXPECT_NEAR(analysis::StudentQuantile(0.025, 10), 2.22814, 1e-4);
  EXPECT_NEAR(analysis::StudentQuantile(0.005, 3), 5.84091, 1e-4);
  EXPECT_NEAR(analysis::StudentQuantile(0.0005, 120), 3.3735, 1e-3);
  EXPECT_NEAR(analysis::StudentCdf(0, 5), 0.5, 1e-12);
  EXPECT_NEAR(analysis::StudentCdf(-2.22814, 10), 0.025, 1e-6);
}

TEST(Tune, FindsTenPercentAmongOthers) {
  int found = 0, covered = 0;
  constexpr int kTrials = 200;
  for (std::uint64_t seed = 1; seed <= kTrials; ++seed) {
    const Outcome o = Play({.factor = {1.0, 1.02, 0.99, 0.90, 1.05, 1.0}}, Apart(6), 600, seed);
    if (o.best.empty() || o.best[0] != 3) continue;
    found += 1;
    const Estimate& e = *o.rows[3].confirmed;
    covered += e.low <= 0.1 && 0.1 <= e.high;
    EXPECT_LE(o.elapsed_s, 600);
    EXPECT_EQ(o.rows[3].verdict, Verdict::kBetter);
  }
  EXPECT_GE(found, kTrials * 97 / 100);
  EXPECT_GE(covered, found * 95 / 100);
}

// The rate of false recommendations where nothing is better, under several kinds of noise: at most 2.5 % are promised,
// and of 400 sessions at most 19 then are false (99.9 %).
void NothingIsRecommended(const char* what, const std::function<Job(std::uint64_t seed)>& make) {
  int wrong = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) wrong += !Play(make(seed), Apart(8), 900, seed).best.empty();
  EXPECT_LE(wrong, 19) << what;
  testing::Test::RecordProperty(what, wrong);
}

TEST(Tune, LeavesAGoodJobAsItIs) {
  const std::vector<double> same(8, 1.0);
  NothingIsRecommended("normal", [&](std::uint64_t) { return Job{.factor = same}; });
  NothingIsRecommended("heavy tails", [&](std::uint64_t seed) {
    auto random = std::make_shared<SeededRandom>(seed + 99);
    return Job{.factor = same, .noise = 0.01, .more = [random](std::size_t, double) {
                 return random->Below(10) == 0 ? 0.3 * random->Unit() : 0;
               }};
  });
  NothingIsRecommended("a machine that gets slower", [&](std::uint64_t) {
    return Job{.factor = same, .noise = 0.01, .more = [](std::size_t, double s) { return s / 900 * 0.3; }};
  });
  NothingIsRecommended("a machine with moods", [&](std::uint64_t seed) {
    auto random = std::make_shared<SeededRandom>(seed + 7);
    auto mood = std::make_shared<double>(0);
    return Job{.factor = same, .noise = 0.01, .more = [=](std::size_t, double) {
                 if (random->Below(6) == 0) *mood = random->Below(2) == 0 ? 0.0 : 0.15;
                 return *mood;
               }};
  });
  NothingIsRecommended("a walk", [&](std::uint64_t seed) {
    auto random = std::make_shared<SeededRandom>(seed + 17);
    auto walk = std::make_shared<double>(0);
    return Job{
        .factor = same, .noise = 0.005, .more = [=](std::size_t, double) { return *walk += 0.02 * Normal(*random); }};
  });
}

TEST(Tune, NothingWorseIsRecommended) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Outcome o = Play({.factor = {1.03, 1.05, 1.02, 1.1}}, Apart(4), 600, seed);
    EXPECT_TRUE(o.best.empty()) << seed;
  }
}

TEST(Tune, FindsItOnAMachineThatDrifts) {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const Outcome o = Play(
        {.factor = {1.0, 0.9, 1.0, 1.0}, .noise = 0.02, .more = [](std::size_t, double s) { return 0.4 * s / 600; }},
        Apart(4), 600, seed);
    found += o.best == std::vector<std::size_t>{1};
  }
  EXPECT_GE(found, 95);
}

TEST(Tune, PutsTwoGainsTogether) {
  int both = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const Outcome o = Play({.factor = {0.9, 1.0, 0.85, 1.0}, .noise = 0.01}, Apart(4), 1200, seed);
    if (o.best.size() < 2) continue;
    both += 1;
    EXPECT_EQ(std::set<std::size_t>(o.best.begin(), o.best.end()), (std::set<std::size_t>{0, 2}));
    EXPECT_NEAR(o.total->gain, 1 - 0.9 * 0.85, 0.03);
  }
  EXPECT_GE(both, 45);
}

TEST(Tune, TakesOneOfAGroup) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Outcome o = Play({.factor = {0.9, 0.89, 0.88}, .noise = 0.005}, {"cap", "cap", "cap"}, 1200, seed);
    EXPECT_EQ(o.best.size(), 1u);
  }
}

TEST(Tune, WhatBreaksIsRefusedOnceAndNotRunAgain) {
  for (const End end : {End::kFailed, End::kHung, End::kChanged, End::kNotApplied}) {
    std::size_t ran = 0;
    // It would be the fastest by far.
    const Outcome o = Play({.factor = {0.5, 0.9, 1.0},
                            .end =
                                [&](std::size_t i) {
                                  ran += i == 0;
                                  return i == 0 ? end : End::kGood;
                                }},
                           Apart(3), 600, 3);
    EXPECT_EQ(o.best, std::vector<std::size_t>{1});
    EXPECT_EQ(ran, 1u);
    EXPECT_EQ(o.rows[0].why, "it broke");
    EXPECT_EQ(o.rows[0].verdict, end == End::kFailed    ? Verdict::kFailed
                                 : end == End::kHung    ? Verdict::kHung
                                 : end == End::kChanged ? Verdict::kChanged
                                                        : Verdict::kNotApplied);
  }
}

// What fails now and then fails while it is confirmed, at the latest.
TEST(Tune, WhatBreaksLaterIsNotRecommended) {
  std::size_t ran = 0;
  const Outcome o = Play({.factor = {0.8}, .end = [&](std::size_t) { return ++ran > 2 ? End::kChanged : End::kGood; }},
                         Apart(1), 600, 1);
  EXPECT_TRUE(o.best.empty());
  EXPECT_EQ(o.rows[0].verdict, Verdict::kChanged);
}

TEST(Tune, AJobThatFailsByItselfEndsIt) {
  SessionOptions options;
  Session session(Apart(2), options);
  int runs = 0;
  while (session.Next(runs)) {
    ++runs;
    session.Took({.end = End::kFailed, .cost_s = 1, .why = "exit code 1"});
  }
  EXPECT_EQ(session.trouble(), "exit code 1");
  EXPECT_FALSE(session.decided());
  EXPECT_LT(runs, 8);
}

TEST(Tune, EveryBudgetIsKept) {
  for (const double budget_s : {0.0, 1.0, 20.0, 39.0, 40.0, 45.0, 60.0, 100.0, 200.0, 1000.0})
    for (std::size_t count : {0u, 1u, 2u, 5u, 40u}) {
      const Outcome o = Play({.factor = std::vector<double>(count, 0.9)}, Apart(count), budget_s, 1);
      EXPECT_LE(o.elapsed_s, budget_s) << budget_s << " s, " << count;
      if (budget_s < 40 && count > 0) {
        EXPECT_TRUE(o.best.empty());
        EXPECT_FALSE(o.decided);
      }
      if (count == 0) {
        EXPECT_EQ(o.runs, 0u);
      }
    }
}

TEST(Tune, ItIsOverWhenItSaid) {
  for (const double budget_s : {45.0, 100.0, 600.0, 10000.0})
    for (std::size_t count : {1u, 2u, 5u, 9u})
      for (const double factor : {0.7, 0.97, 1.0}) {
        Job job{.factor = std::vector<double>(count, factor), .noise = 0.03};
        if (factor == 0.97) job.end = [](std::size_t candidate) { return candidate == 1 ? End::kFailed : End::kGood; };
        const Outcome o = Play(job, Apart(count), budget_s, count);
        ASSERT_GT(o.runs, 0u);
        EXPECT_LE(o.elapsed_s, o.most_s) << budget_s << " s, " << count << ", " << factor;
        EXPECT_LE(o.most_s, budget_s);
        EXPECT_GE(o.left_s, job.cost_s);
      }
  // A plan shorter than the budget is what is left; it is met where the last look decides nothing.
  std::size_t undecided = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Outcome o = Play({.factor = {0.985}, .noise = 0.05}, Apart(1), 10000, seed);
    if (o.rows[0].verdict != Verdict::kUndecided) continue;
    undecided += 1;
    EXPECT_EQ(o.most_s, o.elapsed_s);
    EXPECT_EQ(o.elapsed_s, 2 * 48 * 5);
  }
  EXPECT_GT(undecided, 0u);
}

// Far from all runs of a sweep that would decide as surely.
TEST(Tune, CertaintyEndsIt) {
  const Outcome o = Play({.factor = {0.7, 1, 1, 1}, .noise = 0.005}, {"a", "a", "a", "a"}, 3600, 1);
  EXPECT_EQ(o.best, std::vector<std::size_t>{0});
  EXPECT_TRUE(o.decided);
  EXPECT_LE(o.runs, 30u);
}

// What is left of a budget is for those that it was too small for at first.
TEST(Tune, TheRestOfTheBudgetIsUsed) {
  std::vector<std::string> groups = Apart(9);
  groups[1] = groups[0];
  Job job{.factor = std::vector<double>(9, 1.0), .noise = 0.003};
  job.factor[0] = 0.7;
  job.factor[1] = 0.75;
  job.factor[8] = 0.8;
  const Outcome o = Play(job, groups, 500, 2);
  EXPECT_EQ(o.best, (std::vector<std::size_t>{0, 8}));
  EXPECT_TRUE(o.decided);
}

TEST(Tune, OneCandidateIsConfirmedAtOnce) {
  const Outcome o = Play({.factor = {0.9}, .noise = 0.01}, Apart(1), 300, 1);
  EXPECT_EQ(o.best.size(), 1u);
  EXPECT_FALSE(o.rows[0].screened);
}

TEST(Tune, ATinyGainIsNone) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    EXPECT_TRUE(Play({.factor = {0.998}, .noise = 0.001}, Apart(1), 3600, seed).best.empty());
}

}  // namespace
}  // namespace lockstep::tune
