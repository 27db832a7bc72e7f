// Better schedules, more ranks, ordinary durations: on jobs whose other version is built the same way.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "analysis/replay/graph/counterfactual.h"
#include "analysis/replay/graph/likeness.h"
#include "analysis/replay/host/host_run.h"
#include "analysis/replay/questions/more_ranks.h"
#include "analysis/replay/questions/perfect_schedule.h"
#include "analysis/replay/questions/what_if.h"

namespace lockstep::replay {
namespace {

constexpr std::int64_t kMs = 1'000'000;
constexpr std::uint64_t kMiB = 1 << 20;

// Four ranks of 10 ms of work in four parts, each followed by a blocking all-reduce of 2 ms, then 4 ms more.
HostRun Blocking(std::size_t ranks, std::size_t steps, double slow = 1) {
  HostRun run;
  run.stretches.resize(ranks);
  for (std::size_t r = 0; r < ranks; ++r) run.ranks.push_back(static_cast<std::int32_t>(r));
  std::vector<std::int64_t> now(ranks, 0);
  for (std::size_t step = 0; step < steps; ++step) {
    const std::int64_t began = std::accumulate(now.begin(), now.end(), std::int64_t{0});
    run.steps.push_back(static_cast<std::int64_t>(step));
    for (int k = 0; k < 4; ++k) {
      const auto c = static_cast<std::uint32_t>(run.collectives.size());
      run.collectives.push_back({c, 7, CollectiveKind::kAllReduce, 4 * kMiB, static_cast<std::uint32_t>(ranks)});
      std::int64_t last = 0;
      for (std::size_t r = 0; r < ranks; ++r) {
        now[r] += std::llround(2.5 * kMs * (r == 1 ? slow : 1));
        last = std::max(last, now[r]);
      }
      for (std::size_t r = 0; r < ranks; ++r) {
        RankStretches& rank = run.stretches[r];
        rank.collectives.push_back({c, c, 0, false, false, now[r], now[r], last + 2 * kMs, last + 2 * kMs});
        rank.training.push_back(
            {Stretch::kBlocking, now[r], last + 2 * kMs, {static_cast<std::uint32_t>(rank.collectives.size() - 1)}, 0});
        now[r] = last + 2 * kMs;
      }
    }
    for (std::size_t r = 0; r < ranks; ++r) {
      now[r] += std::llround(4 * kMs * (r == 1 ? slow : 1));
      run.stretches[r].training.push_back({Stretch::kStepEnd, now[r], now[r], {}, static_cast<std::uint32_t>(step)});
    }
    const std::int64_t ended = std::accumulate(now.begin(), now.end(), std::int64_t{0});
    run.measured_step_ns.push_back((ended - began) / static_cast<std::int64_t>(ranks));
  }
  return run;
}

WhatIf Make(HostRun run) {
  Result<WhatIf> what_if = WhatIf::Make(std::make_unique<HostRun>(std::move(run)));
  EXPECT_TRUE(what_if.ok());
  return std::move(what_if).value();
}

std::int64_t Asked(const WhatIf& what_if, Question::Kind kind) {
  Question question;
  question.kind = kind;
  const Result<Answer> answer = what_if.Ask(question);
  EXPECT_TRUE(answer.ok()) << answer.error().what;
  return answer.ok() ? answer.value().step_ns : -1;
}

// Damaged recordings have it, whichever rank is the first.
TEST(MixedModes, PostedOnOneRankAndBlockingOnAnotherReplaysAsRecorded) {
  for (const std::size_t posting : {0, 1}) {
    HostRun run = Blocking(2, 2, 1.2);
    RankStretches& rank = run.stretches[posting];
    RankCollective& collective = rank.collectives[0];
    collective.posted = true;
    Stretch& call = rank.training[0];
    Stretch wait = call;
    wait.kind = Stretch::kWait;
    call.kind = Stretch::kPost;
    call.end_ns = call.begin_ns;
    rank.training.insert(rank.training.begin() + 1, wait);
    const std::int64_t measured_ns = run.measured_step_ns[0];
    const Job job = run.MakeJob();
    const Result<Schedule> schedule = Simulator(job.graph).Run();
    ASSERT_TRUE(schedule.ok());
    std::int64_t ends_ns = 0;
    for (const std::uint32_t end : job.step_ends[0]) ends_ns += schedule.value().end_ns[end];
    EXPECT_EQ(ends_ns / 2, measured_ns) << posting;
  }
}

TEST(Schedules, BlockingReductionsPostedWhereTheyAre) {
  const WhatIf what_if = Make(Blocking(4, 10));
  ASSERT_EQ(what_if.replayed_step_ns(), 22 * kMs);
  // Three are hidden under the parts that follow, the last one is not: 10 + 2 + 4.
  EXPECT_EQ(Asked(what_if, Question::kOverlap), 16 * kMs);
  EXPECT_EQ(Asked(what_if, Question::kFreeCommunication), 14 * kMs);
  // Sent in small pieces as they come, nothing but the last piece is left: not below what no communication gives.
  const std::int64_t best = Asked(what_if, Question::kPerfectSchedule);
  EXPECT_GE(best, 14 * kMs);
  EXPECT_LE(best, 14 * kMs + 8 * kMs / 16);
}

TEST(Schedules, NothingToPost) {
  HostRun run = Blocking(2, 5);
  for (RunCollective& c : run.collectives) c.kind = CollectiveKind::kAllToAll;
  const WhatIf what_if = Make(std::move(run));
  Question question;
  question.kind = Question::kOverlap;
  EXPECT_EQ(what_if.Ask(question).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(Asked(what_if, Question::kPerfectSchedule), what_if.replayed_step_ns());
}

TEST(Schedules, MoreRanksOfAnEvenJob) {
  const WhatIf what_if = Make(Blocking(4, 10));
  Question question;
  question.kind = Question::kMoreRanks;
  question.rank_count = 16;
  const Result<Answer> answer = what_if.Ask(question);
  ASSERT_TRUE(answer.ok()) << answer.error().what;
  // One size only: the line has no latency, bandwidth goes from 3/4 to 15/16.
  EXPECT_NEAR(static_cast<double>(answer.value().step_ns), (14 + 4 * 2 * 1.25) * kMs, 0.01 * kMs);
  EXPECT_TRUE(answer.value().extrapolated);
  question.rank_count = 2;
  EXPECT_EQ(what_if.Ask(question).error().code, ErrorCode::kUsage);
}

// The slowest of more ranks is slower.
TEST(Schedules, JitterGrowsWithTheRanks) {
  HostRun run = Blocking(4, 20, 1.2);
  const WhatIf what_if = Make(std::move(run));
  Question question;
  question.kind = Question::kMoreRanks;
  std::int64_t before = what_if.replayed_step_ns() - 1;
  for (const std::size_t ranks : {8u, 64u}) {
    question.rank_count = ranks;
    const Result<Answer> answer = what_if.Ask(question);
    ASSERT_TRUE(answer.ok());
    EXPECT_GE(answer.value().step_ns, before) << ranks;
    EXPECT_LE(answer.value().step_interval_ns.value().first, answer.value().step_ns);
    EXPECT_GE(answer.value().step_interval_ns.value().second, answer.value().step_ns);
    before = answer.value().step_ns;
  }
}

TEST(Likeness, BalancedWorkIsTheMean) {
  const HostRun run = Blocking(4, 10, 1.4);
  Job job = run.MakeJob();
  Counterfactual counter(job.graph, OrdinaryDurations(run, job),
                         [&](const Schedule& schedule) { return job.StepLengths(schedule); });
  const Result<double> slowdown = counter.Slowdown();
  ASSERT_TRUE(slowdown.ok());
  // 14 ms of work, 1.4 times that on one of four ranks, 1.1 on average; 8 ms of transfers. Behind the last of ten steps
  // nobody waits: three ranks of four end it 0.4 x 4 ms earlier.
  EXPECT_NEAR(slowdown.value(), (10 * (14 * 1.4 + 8) - 0.75 * 1.6) / (10 * (14 * 1.1 + 8)), 1e-6);
  const Result<Counterfactual::Contribution> slow =
      counter.Of([&](std::uint32_t i) { return job.operations[i].rank == 1; });
  ASSERT_TRUE(slow.ok());
  EXPECT_NEAR(slow.value().removed, 1, 0.01) << "all of it is this rank's";
  EXPECT_NEAR(slow.value().added, 1, 0.01);
  const Result<Counterfactual::Contribution> other =
      counter.Of([&](std::uint32_t i) { return job.operations[i].rank == 0; });
  EXPECT_NEAR(other.value().removed, 0, 0.01);
}

}  // namespace
}  // namespace lockstep::replay
