#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "analysis/core/statistics.h"
#include "analysis/replay/gpu/gpu_raw.h"
#include "analysis/replay/gpu/gpu_run.h"
#include "analysis/replay/questions/what_if.h"
#include "trace/file/strings.h"

namespace lockstep::replay {
namespace {

constexpr std::int64_t kUs = 1'000, kMs = 1'000'000;
constexpr std::uint16_t kCompute = 0, kComm = 1, kHost = 1;

// Builds a rank's items; times on the GPU are lengths only, until a replay has given the begins.
class RankBuilder {
 public:
  explicit RankBuilder(GpuRank& rank) : rank_(rank) {
    rank.lanes = {{0, 0, 7, false}, {0, 0, 20, true}};
    rank.threads = 2;
    rank.groups = {11, 12};
  }
  std::uint32_t Kernel(std::int64_t call_ns, std::int64_t length_ns, std::uint32_t group = 0,
                       std::uint16_t lane = kCompute) {
    GpuItem item;
    item.lane = lane;
    item.ref = group;
    item.end_ns = length_ns;
    item.lag_ns = 3 * kUs;
    return Put(item, call_ns);
  }
  std::uint32_t Wait(std::int64_t call_ns, std::uint16_t lane, std::uint32_t of) {
    rank_.items[of].watched = true;
    GpuItem item;
    item.kind = GpuItem::kWait;
    item.lane = lane;
    item.ref = of;
    return Put(item, call_ns);
  }
  std::uint32_t Member(std::int64_t call_ns, std::uint32_t collective, std::int64_t transfer_ns) {
    GpuItem item;
    item.kind = GpuItem::kMember;
    item.lane = kComm;
    item.ref = collective;
    item.end_ns = transfer_ns;
    item.lag_ns = 3 * kUs;
    return Put(item, call_ns);
  }
  void Sync(std::int64_t call_ns, std::int64_t end_ns, const GpuSync& sync) {
    GpuItem item;
    item.kind = GpuItem::kSync;
    item.ref = static_cast<std::uint32_t>(rank_.syncs.size());
    item.begin_ns = call_ns;
    item.end_ns = end_ns;
    item.delay_ns = 2 * kUs;
    rank_.syncs.push_back(sync);
    Put(item, call_ns);
  }
  void Gate() { rank_.gates.push_back(static_cast<std::uint32_t>(rank_.items.size())); }

 private:
  std::uint32_t Put(GpuItem item, std::int64_t call_ns) {
    item.thread = kHost;
    item.call_ns = call_ns;
    rank_.items.push_back(item);
    return static_cast<std::uint32_t>(rank_.items.size() - 1);
  }
  GpuRank& rank_;
};

JobOptions SingleKernels() {
  JobOptions options;
  options.interference.compute_slowdown = 1e-15;
  return options;
}

Schedule Play(const Job& job, const Interference& interference = {}) {
  const Result<Schedule> schedule = Simulator(job.graph).Run(interference);
  EXPECT_TRUE(schedule.ok()) << schedule.error().what;
  return schedule.ok() ? schedule.value() : Schedule{};
}

// Makes what a replay gives the recorded times.
void Record(GpuRun& run, const Job& job, const Schedule& schedule) {
  for (std::uint32_t r = 0; r < run.gpu_ranks.size(); ++r) {
    std::vector<std::uint32_t> operations;
    for (std::uint32_t i = 0; i < job.operations.size(); ++i)
      if (job.operations[i].rank == r &&
          (job.operations[i].role == Role::kKernel || job.operations[i].role == Role::kMember))
        operations.push_back(i);
    std::size_t next = 0;
    for (std::size_t i = 0; i < run.gpu_ranks[r].items.size(); ++i) {
      GpuItem& item = run.gpu_ranks[r].items[i];
      if ((item.kind != GpuItem::kKernel && item.kind != GpuItem::kMember) || i == run.gpu_ranks[r].gates.back())
        continue;
      item.begin_ns = schedule.begin_ns[operations.at(next)];
      item.end_ns = schedule.end_ns[operations.at(next++)];
    }
  }
  run.measured_step_ns = job.StepLengths(schedule);
}

// Two ranks, 12 steps of nine kernels; three reductions of 1.3 ms beside them, the last one also behind them.
GpuRun MakeRun(std::int64_t last_kernels_ns = kMs) {
  GpuRun run;
  run.ranks = {0, 1};
  run.gpu_ranks.resize(2);
  run.of_message.resize(2);
  constexpr std::uint32_t kSteps = 12;
  for (std::uint32_t r = 0; r < 2; ++r) {
    RankBuilder rank(run.gpu_ranks[r]);
    std::int64_t now = 0;
    for (std::uint32_t step = 0; step < kSteps; ++step) {
      rank.Gate();
      std::uint32_t last = kNone;
      for (std::uint32_t k = 0; k < 9; ++k) {
        const std::uint32_t made = rank.Kernel(now += 10 * kUs, (k < 7 ? kMs : last_kernels_ns) + r * 20 * kUs);
        if (k % 3 != 2) continue;
        now += 5 * kUs;
        rank.Wait(now, kComm, made);
        last = rank.Member(now, step * 3 + k / 3, 1300 * kUs + (step % 3) * 5 * kUs);
      }
      rank.Wait(now += 5 * kUs, kCompute, last);
      rank.Kernel(now += 10 * kUs, 300 * kUs, 1);
      now += 6 * kMs;
    }
    rank.Gate();
    rank.Kernel(now, kMs);
  }
  for (std::uint32_t c = 0; c < 3 * kSteps; ++c)
    run.collectives.push_back({c, 7, CollectiveKind::kAllReduce, 1 << 20, 2});
  for (std::uint32_t step = 0; step < kSteps; ++step) run.steps.push_back(step);
  return run;
}

void RecordAlone(GpuRun& run) {
  const Job job = run.MakeJob(SingleKernels());
  Record(run, job, Play(job));
}

TEST(GpuReplay, ChainsGiveTheTimesOfTheirKernels) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    analysis::SeededRandom random(seed);
    GpuRun run;
    run.ranks = {0};
    run.gpu_ranks.resize(1);
    run.of_message.resize(1);
    run.steps = {0, 1};
    RankBuilder rank(run.gpu_ranks[0]);
    std::int64_t now = 0;
    std::uint32_t last[2] = {kNone, kNone};
    rank.Gate();
    for (int i = 0; i < 200; ++i) {
      now += static_cast<std::int64_t>(random.Below(20) * kUs);
      if (i == 100) rank.Gate();
      const auto lane = static_cast<std::uint16_t>(random.Below(2));
      const std::uint64_t what = i == 0 || i == 100 ? 9 : random.Below(12);
      if (what == 0 && last[1 - lane] != kNone) {
        rank.Wait(now, lane, last[1 - lane]);
      } else if (what == 1) {
        rank.Sync(now, now + 5 * kUs, {{lane}, kNone});
        now += 5 * kUs;
      } else {
        last[lane] = rank.Kernel(now, static_cast<std::int64_t>(random.Below(30) * kUs), 0, lane);
        run.gpu_ranks[0].items.back().delay_ns = static_cast<std::int64_t>(random.Below(2) * kUs);
      }
    }
    rank.Gate();
    rank.Kernel(now + kUs, kUs);
    const Job chains = run.MakeJob(), kernels = run.MakeJob(SingleKernels());
    EXPECT_LT(chains.graph.operations().size(), kernels.graph.operations().size());
    EXPECT_EQ(chains.StepLengths(Play(chains)), kernels.StepLengths(Play(kernels))) << seed;
  }
}

TEST(GpuReplay, NothingChangedGivesTheMeasuredSteps) {
  GpuRun run = MakeRun();
  RecordAlone(run);
  const Job job = run.MakeJob();
  EXPECT_EQ(job.StepLengths(Play(job)), run.measured_step_ns);
}

TEST(GpuReplay, KnownInterferenceComesBack) {
  for (const Interference truth : {Interference{0.2, 0.3}, Interference{0.1, 0}, Interference{0, 0.5}}) {
    GpuRun run = MakeRun();
    const Job alone = run.MakeJob(SingleKernels());
    Record(run, alone, Play(alone, truth));
    const InterferenceEstimate estimate = run.EstimateInterference();
    EXPECT_GT(estimate.samples, 0u);
    EXPECT_NEAR(estimate.value.compute_slowdown, truth.compute_slowdown, 0.03);
    EXPECT_NEAR(estimate.value.transfer_slowdown, truth.transfer_slowdown, 0.03);
    EXPECT_LE(estimate.compute_interval.first, estimate.value.compute_slowdown);
    EXPECT_GE(estimate.compute_interval.second, estimate.value.compute_slowdown);
    // Made what they would be alone, and slowed again: the recorded steps.
    const Job again = run.MakeJob({.interference = truth});
    const std::vector<std::int64_t> lengths = again.StepLengths(Play(again, truth));
    ASSERT_EQ(lengths.size(), run.measured_step_ns.size());
    for (std::size_t i = 1; i < lengths.size(); ++i)
      EXPECT_NEAR(static_cast<double>(lengths[i]) / static_cast<double>(run.measured_step_ns[i]), 1, 0.001);
  }
}

TEST(GpuReplay, QuestionsAnswerByHand) {
  GpuRun run = MakeRun();
  RecordAlone(run);
  Result<WhatIf> what_if = WhatIf::Make(std::make_unique<GpuRun>(run));
  ASSERT_TRUE(what_if.ok());
  EXPECT_EQ(what_if.value().self_error(), 0);
  const auto ask = [&](Question::Kind kind, std::vector<std::int32_t> ranks = {}) {
    Question question;
    question.kind = kind;
    question.ranks = std::move(ranks);
    const Result<Answer> answer = what_if.value().Ask(question);
    EXPECT_TRUE(answer.ok()) << answer.error().what;
    return answer.ok() ? answer.value().step_ns : 0;
  };
  // Rank 1 computes 9 x 1.02 ms; the last reduction follows, then 0.3 ms.
  EXPECT_NEAR(static_cast<double>(what_if.value().measured_step_ns()), 9.18 * kMs + 1.305 * kMs + 0.3 * kMs, 30 * kUs);
  EXPECT_NEAR(static_cast<double>(ask(Question::kFreeCommunication)), 9.18 * kMs + 0.3 * kMs, 20 * kUs);
  EXPECT_NEAR(static_cast<double>(ask(Question::kNoOverlap)), 9.18 * kMs + 3 * 1.305 * kMs + 0.3 * kMs, 50 * kUs);
  EXPECT_NEAR(static_cast<double>(ask(Question::kWithoutRanks, {1})), 9 * kMs + 1.305 * kMs + 0.3 * kMs, 30 * kUs);
}

// Ranks that the run does not have have no number to name.
TEST(GpuReplay, MoreRanksAreLimitedByTheSlowest) {
  GpuRun run = MakeRun();
  RecordAlone(run);
  Result<WhatIf> what_if = WhatIf::Make(std::make_unique<GpuRun>(run));
  ASSERT_TRUE(what_if.ok());
  Question question;
  question.kind = Question::kMoreRanks;
  bool added = false;
  for (const std::size_t ranks : {4u, 8u, 16u, 32u}) {
    question.rank_count = ranks;
    const Result<Answer> answer = what_if.value().Ask(question);
    ASSERT_TRUE(answer.ok()) << answer.error().what;
    const std::string& limit = answer.value().limit;
    added |= limit.starts_with("kernels of the slowest rank (");
    EXPECT_TRUE(limit.starts_with("kernels of the slowest rank (") || limit.starts_with("kernels of rank 0 (") ||
                limit.starts_with("kernels of rank 1 ("))
        << limit;
  }
  EXPECT_TRUE(added);
}

// A job whose GPU waits for launches gains nothing from a faster network.
TEST(GpuReplay, LaunchBoundJobsGainNothingFromHidingCommunication) {
  GpuRun run = MakeRun();
  for (GpuRank& rank : run.gpu_ranks) {
    std::int64_t now = 0;
    for (GpuItem& item : rank.items) {
      if (item.kind == GpuItem::kKernel) item.end_ns = 20 * kUs;
      if (item.kind == GpuItem::kMember) item.end_ns = 200 * kUs;
      item.call_ns = now += 500 * kUs;
    }
  }
  RecordAlone(run);
  Result<WhatIf> what_if = WhatIf::Make(std::make_unique<GpuRun>(run));
  ASSERT_TRUE(what_if.ok());
  Question question;
  question.kind = Question::kFreeCommunication;
  const Result<Answer> answer = what_if.value().Ask(question);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer.value().gain_ns, 0);
  EXPECT_NE(answer.value().limit.find("host work"), std::string::npos) << answer.value().limit;
}

TEST(GpuReplay, OneThreadGoesOnWhereAnotherStopped) {
  // The main thread works, waits for autograd's, works on; a third does little all the time.
  const std::vector<IntervalSet> activity = {{{0, 10 * kMs}, {30 * kMs, 40 * kMs}},
                                             {{11 * kMs, 20 * kMs}, {20 * kMs + 5 * kUs, 29 * kMs}},
                                             {{5 * kMs, 5 * kMs + kUs}, {25 * kMs, 25 * kMs + kUs}}};
  const std::vector<HandOver> found = FindHandOvers(activity);
  const auto has = [&](std::uint32_t from, std::uint32_t to, std::int64_t give_ns, std::int64_t take_ns) {
    return std::any_of(found.begin(), found.end(), [&](const HandOver& each) {
      return each.from == from && each.to == to && each.give_ns == give_ns && each.take_ns == take_ns;
    });
  };
  EXPECT_TRUE(has(1, 0, 29 * kMs, 30 * kMs));
  EXPECT_TRUE(has(0, 1, 10 * kMs, 11 * kMs));
  EXPECT_FALSE(has(2, 0, 25 * kMs + kUs, 30 * kMs));
}

// Five steps of a forward and a backward kernel, a collective behind them on its own stream and an optimizer behind
// that, all launched at once, in a trace that does not show for what streams wait. `early_ns`: the wait for all of it
// returns so long before the last kernel ends; `row`: the trace describes that wait.
GpuRank OneCollectivePerStep(std::int64_t early_ns, bool row) {
  schema::RankTables t;
  trace::StringInterner strings(t.strings, t.string_bytes);
  const std::uint32_t wait = strings.Intern("cudaStreamSynchronize"), compute = strings.Intern("gemm"),
                      nccl = strings.Intern("ncclDevKernel_AllReduce_Sum_f32_RING_LL");
  GpuRankRequest request;
  std::int64_t now = kMs;
  for (std::uint32_t step = 0; step < 5; ++step) {
    std::int64_t gpu = now + 20 * kUs;
    request.bounds_ns.push_back(gpu);
    const auto launch = [&](std::int64_t length_ns, std::uint32_t stream, std::uint32_t name) {
      const std::uint64_t correlation = t.api.rows() + 1;
      t.api.Append({.begin_ns = now,
                    .duration_ns = 5 * kUs,
                    .thread = 0,
                    .kind = schema::ApiKind::kLaunch,
                    .correlation = correlation});
      t.kernels.Append({.begin_ns = gpu,
                        .duration_ns = length_ns,
                        .context = 1,
                        .stream = stream,
                        .correlation = correlation,
                        .name = name});
      now += 10 * kUs;
      gpu += length_ns;
    };
    launch(2 * kMs, 7, compute), launch(3 * kMs, 7, compute);
    request.collectives.emplace_back(step, step);
    t.collectives.Append(
        {.begin_ns = gpu, .end_ns = gpu + kMs, .kernel = static_cast<std::uint32_t>(t.kernels.rows())});
    launch(kMs, 20, nccl), launch(kMs, 7, compute);
    const std::uint64_t correlation = t.api.rows() + 1;
    t.api.Append({.begin_ns = now,
                  .duration_ns = gpu - early_ns - now,
                  .thread = 0,
                  .name = wait,
                  .kind = schema::ApiKind::kSync,
                  .correlation = correlation});
    if (row)
      t.sync.Append({.begin_ns = now,
                     .duration_ns = gpu - early_ns - now,
                     .kind = schema::SyncKind::kStream,
                     .context = 1,
                     .stream = 7,
                     .correlation = correlation});
    request.bounds_ns.resize(step + 1);
    now = gpu + 30 * kUs;
  }
  request.bounds_ns.push_back(now);
  return DistillGpuRank(t, merge::ClockMap(schema::Clock{}, 0), request);
}

TEST(GpuReplay, ACollectiveThatWorkHeldBackTellsNothingOfItsLatency) {
  const GpuRank rank = OneCollectivePerStep(0, false);
  std::size_t collectives = 0;
  for (const GpuItem& item : rank.items) {
    if (item.kind != GpuItem::kMember) continue;
    ++collectives;
    EXPECT_LE(item.lag_ns, 20 * kUs);
    EXPECT_LE(item.delay_ns, kUs);
    ASSERT_NE(item.after, kNone);
    EXPECT_EQ(rank.items[item.after].end_ns, item.begin_ns);
  }
  EXPECT_EQ(collectives, 5u);
}

TEST(GpuReplay, AWaitThatTheTraceDescribesIsOneThoughItReturnsEarly) {
  for (const bool row : {true, false}) {
    const GpuRank rank = OneCollectivePerStep(8 * kUs, row);
    ASSERT_EQ(rank.syncs.size(), 5u);
    for (const GpuSync& sync : rank.syncs)
      EXPECT_EQ(std::count_if(sync.lanes.begin(), sync.lanes.end(),
                              [&](std::uint16_t lane) { return rank.lanes[lane].stream == 7; }),
                row ? 1 : 0);
    for (const GpuItem& item : rank.items) EXPECT_LE(item.begin_ns, item.end_ns);
  }
}

}  // namespace
}  // namespace lockstep::replay
