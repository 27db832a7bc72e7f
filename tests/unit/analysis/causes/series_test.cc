// Causes that the steps' lengths show: warm-up that was recorded, bursts that recur.

#include <gtest/gtest.h>

#include <functional>

#include "analysis/run/warmup.h"
#include "tests/unit/analysis/synthetic_job.h"
#include "trace/file/strings.h"

namespace lockstep::test {
namespace {

std::vector<std::int64_t> Steps(std::size_t n, const std::function<double(std::size_t)>& factor) {
  Noise noise(7);
  std::vector<std::int64_t> ns;
  for (std::size_t i = 0; i < n; ++i)
    ns.push_back(static_cast<std::int64_t>(40e6 * factor(i) * (1 + 0.005 * noise.Next())));
  return ns;
}

TEST(Warmup, IsFoundWhereverItEnds) {
  for (const std::size_t length : {1u, 3u, 6u, 10u})
    EXPECT_EQ(analysis::CountWarmup(Steps(40, [&](std::size_t i) { return i < length ? 1.8 : 1.0; })), length);
  // Falling off slowly: as long as it stands out.
  EXPECT_EQ(analysis::CountWarmup(
                Steps(40, [](std::size_t i) { return 1 + (i < 5 ? 1.0 - 0.18 * static_cast<double>(i) : 0); })),
            5u);
}

TEST(Warmup, IsNothingElse) {
  EXPECT_EQ(analysis::CountWarmup(Steps(40, [](std::size_t) { return 1.0; })), 0u);
  EXPECT_EQ(analysis::CountWarmup(Steps(40, [](std::size_t i) { return i < 20 ? 1.5 : 1.0; })), 0u);       // A change.
  EXPECT_EQ(analysis::CountWarmup(Steps(40, [](std::size_t i) { return i % 10 == 0 ? 1.8 : 1.0; })), 0u);  // Bursts.
  EXPECT_EQ(analysis::CountWarmup(Steps(6, [](std::size_t i) { return i < 1 ? 3.0 : 1.0; })), 0u);  // Too few to tell.
  EXPECT_EQ(analysis::CountWarmup(Steps(40, [](std::size_t i) { return i < 3 ? 0.5 : 1.0; })), 0u);
}

const analysis::Finding* Find(const analysis::Analysis& analysis, std::string_view id) {
  for (const analysis::Finding& finding : analysis.findings)
    if (analysis::KindOf(finding.id).name == id) return &finding;
  return nullptr;
}

TEST(Warmup, StaysOutOfMediansAndIsTold) {
  JobSpec spec;
  spec.warmup = 0;
  spec.transfer_ns = 10'000;
  spec.steps = 12;
  spec.compute = [](int step, int) { return step < 4 ? 90'000'000 : 40'000'000; };
  const analysis::Analysis analysis = Simulate(spec).Analyze();
  const analysis::Finding* finding = Find(analysis, "warmup.captured");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->explain.rows.size(), 4u);
  EXPECT_LT(*analysis.summary.job_step_ns_max, 50'000'000);
  EXPECT_TRUE(analysis.steps[3].warmup);
  EXPECT_FALSE(analysis.steps[4].warmup);
  // A healthy run all the same.
  EXPECT_NE(analysis.verdict.find("othing found"), std::string::npos) << analysis.verdict;
}

TEST(Warmup, OneLateRankIsNone) {
  JobSpec spec;
  spec.warmup = 0;
  spec.compute = [](int step, int rank) { return step < 4 && rank == 2 ? 90'000'000 : 40'000'000; };
  EXPECT_EQ(Find(Simulate(spec).Analyze(), "warmup.captured"), nullptr);
}

// `extra_ns`: what a step takes longer.
Job JobLongerBy(const std::function<std::int64_t(int step, int rank)>& extra_ns) {
  JobSpec spec;
  spec.steps = 62;
  spec.transfer_ns = 10'000;
  Noise noise(3);
  std::vector<double> jitter;
  for (int i = 0; i < 62 * 4; ++i) jitter.push_back(noise.Next());
  spec.compute = [=](int step, int rank) {
    return static_cast<std::int64_t>(40e6 * (1 + 0.002 * jitter[static_cast<std::size_t>(4 * step + rank)])) +
           extra_ns(step, rank);
  };
  return Simulate(spec);
}

analysis::Analysis LongerBy(const std::function<std::int64_t(int step, int rank)>& extra_ns) {
  return JobLongerBy(extra_ns).Analyze();
}

analysis::Analysis Bursts(const std::function<bool(int step, int rank)>& burst, std::int64_t ns = 20'000'000) {
  return LongerBy([&](int step, int rank) -> std::int64_t { return burst(step, rank) ? ns : 0; });
}

TEST(Bursts, PeriodAndCostComeBack) {
  const analysis::Analysis analysis = Bursts([](int step, int) { return step % 10 == 5; });
  const analysis::Finding* finding = Find(analysis, "burst.periodic");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->headline.find("Every 10 steps"), std::string::npos) << finding->headline;
  // 6 of 60 steps, 20 ms each.
  EXPECT_NEAR(static_cast<double>(*finding->saves_ns_per_step), 2e6, 0.05 * 2e6);
  EXPECT_EQ(finding->rank, -1);
  EXPECT_EQ(finding->explain.rows.size(), 6u);
}

TEST(Bursts, OfOneRankAreOneFinding) {
  const analysis::Analysis analysis = Bursts([](int step, int rank) { return step % 6 == 5 && rank == 0; });
  const analysis::Finding* finding = Find(analysis, "burst.periodic");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->rank, 0);
  EXPECT_NE(finding->headline.find("Every 6 steps"), std::string::npos) << finding->headline;
  EXPECT_NE(finding->headline.find("on rank 0"), std::string::npos) << finding->headline;
  EXPECT_EQ(Find(analysis, "straggler.arrival"), nullptr);
}

TEST(Bursts, SmallExcursionsBetweenThemDoNotHideThePeriod) {
  const analysis::Analysis analysis = LongerBy([](int step, int) -> std::int64_t {
    if (step % 10 == 5) return 100'000'000;
    return step == 12 || step == 17 || step == 36 ? 4'000'000 : 0;
  });
  const analysis::Finding* finding = Find(analysis, "burst.periodic");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->headline.find("Every 10 steps"), std::string::npos) << finding->headline;
  EXPECT_EQ(finding->explain.rows.size(), 6u);
}

TEST(Bursts, OneFarLongerStepDoesNotHideThem) {
  const analysis::Analysis analysis = LongerBy([](int step, int) -> std::int64_t {
    return step == 25 ? 2'000'000'000 : step % 10 == 5 ? 20'000'000 : 0;
  });
  const analysis::Finding* finding = Find(analysis, "burst.periodic");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->headline.find("Every 10 steps"), std::string::npos) << finding->headline;
}

// Steps that are slow for another reason hide the period by step number and make one in time: the range's steps count.
TEST(Bursts, OtherSlowStepsDoNotHideThePeriodOfARange) {
  const auto saves = [](int step) { return step % 8 == 7; };
  Job job = JobLongerBy([&](int step, int rank) -> std::int64_t {
    if (rank == 0 && saves(step)) return 30'000'000;
    return rank == 2 && (step == 10 || step == 27 || step == 51) ? 25'000'000 : 0;
  });
  schema::RankTables& rank = job.ranks[0];
  const std::uint32_t save = trace::StringInterner(rank.strings, rank.string_bytes).Intern("torch.save");
  const schema::TlStepRanks& steps = job.timeline.tables.step_ranks;
  for (std::size_t i = 0; i < steps.rows(); ++i) {
    if (steps.rank[i] != 0) continue;
    rank.steps.Append({.index = steps.index[i], .begin_ns = steps.begin_ns[i], .end_ns = steps.end_ns[i], .thread = 0});
    if (saves(static_cast<int>(steps.index[i])))
      rank.ranges.Append({.begin_ns = steps.begin_ns[i],
                          .duration_ns = 30'000'000,
                          .thread = 0,
                          .name = save,
                          .category = schema::Category::kCheckpoint});
  }
  const analysis::Analysis analysis = job.Analyze();
  const analysis::Finding* finding = Find(analysis, "burst.periodic");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->headline.rfind("Every 8 steps rank 0 is in \"torch.save\" (checkpoint)", 0), 0u)
      << finding->headline;
  EXPECT_EQ(finding->explain.rows.size(), 7u);
  // 7 of 60 steps, 30 ms each: what the other slow steps cost is not the range's.
  EXPECT_NEAR(static_cast<double>(*finding->saves_ns_per_step), 7 * 30e6 / 60, 0.05 * 7 * 30e6 / 60);
}

// Steps of rank 0, with ranges of these names and lengths at the begin of those that `has` them.
void AddRanges(Job& job, const std::function<bool(int step)>& has,
               const std::vector<std::pair<std::string, std::int64_t>>& ranges) {
  schema::RankTables& rank = job.ranks[0];
  trace::StringInterner strings(rank.strings, rank.string_bytes);
  const schema::TlStepRanks& steps = job.timeline.tables.step_ranks;
  for (std::size_t i = 0; i < steps.rows(); ++i) {
    if (steps.rank[i] != 0) continue;
    rank.steps.Append({.index = steps.index[i], .begin_ns = steps.begin_ns[i], .end_ns = steps.end_ns[i], .thread = 0});
    for (const auto& [name, ns] : ranges)
      if (has(static_cast<int>(steps.index[i])))
        rank.ranges.Append({.begin_ns = steps.begin_ns[i],
                            .duration_ns = ns,
                            .thread = 0,
                            .name = strings.Intern(name),
                            .category = schema::Category::kNone});
  }
}

// Compiling goes through the function that it compiles.
TEST(Bursts, ACompilationIsWhyWhatItEnclosesTakesLonger) {
  const auto compiles = [](int step) { return step % 8 == 7; };
  Job job = JobLongerBy([&](int step, int) -> std::int64_t { return compiles(step) ? 30'000'000 : 0; });
  AddRanges(job, compiles, {{"forward", 25'000'000}, {"torch.compile", 29'000'000}, {"inner", 20'000'000}});
  const analysis::Analysis analysis = job.Analyze();
  const analysis::Finding* finding = Find(analysis, "burst.periodic");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->headline.find("\"torch.compile\""), std::string::npos) << finding->headline;
  EXPECT_NE(finding->action.find("mark_dynamic"), std::string::npos) << finding->action;
}

TEST(Warmup, OfCompilingIsNotNothing) {
  for (const std::int64_t compile_ns : {10'000'000, 800'000'000}) {
    JobSpec spec;
    spec.warmup = 0;
    spec.transfer_ns = 10'000;
    spec.steps = 12;
    spec.compute = [](int step, int) { return step < 4 ? 1'000'000'000 : 40'000'000; };
    Job job = Simulate(spec);
    AddMeta(job.timeline.tables, "fact.ddp_model", "model=0");
    AddRanges(job, [](int step) { return step < 4; }, {{"torch.compile", compile_ns}});
    const analysis::Analysis analysis = job.Analyze();
    const analysis::Finding* finding = Find(analysis, "warmup.captured");
    ASSERT_NE(finding, nullptr);
    const bool compiles = compile_ns > 500'000'000;
    EXPECT_EQ(finding->action.starts_with("nothing to fix"), !compiles) << finding->action;
    EXPECT_EQ(finding->evidence.find("torch.compile takes 3200 ms of their") != std::string::npos, compiles)
        << finding->evidence;
    // Most of the recorded steps' time.
    EXPECT_NE(std::find(analysis.remarks.begin(), analysis.remarks.end(), finding->headline), analysis.remarks.end());
  }
}

// A rank that sleeps until another thread's collectives end may look as if it worked: only those in the range are
// named.
TEST(Bursts, OnlyRanksThatAreInTheRangeAreNamed) {
  const auto collects = [](int step) { return step % 8 == 7; };
  for (const bool both : {false, true}) {
    Job job = JobLongerBy([&](int step, int rank) -> std::int64_t {
      return !collects(step) ? 0 : rank == 0 ? 31'000'000 : rank == 1 ? 30'000'000 : 0;
    });
    const schema::TlStepRanks& steps = job.timeline.tables.step_ranks;
    for (const std::int32_t r : {0, 1}) {
      schema::RankTables& rank = job.ranks[static_cast<std::size_t>(r)];
      const std::uint32_t gc = trace::StringInterner(rank.strings, rank.string_bytes).Intern("collection");
      for (std::size_t i = 0; i < steps.rows(); ++i) {
        if (steps.rank[i] != r) continue;
        rank.steps.Append(
            {.index = steps.index[i], .begin_ns = steps.begin_ns[i], .end_ns = steps.end_ns[i], .thread = 0});
        if (collects(static_cast<int>(steps.index[i])) && (both || r == 1))
          rank.ranges.Append(
              {.begin_ns = steps.begin_ns[i], .duration_ns = 30'000'000, .thread = 0, .name = gc, .category = 0});
      }
    }
    const analysis::Analysis analysis = job.Analyze();
    const analysis::Finding* finding = Find(analysis, "burst.periodic");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->headline.rfind(both ? "Every 8 steps ranks 0 and 1 are in" : "Every 8 steps rank 1 is in", 0),
              0u)
        << finding->headline;
    EXPECT_NE(finding->evidence.find(both ? "on rank 0" : "on rank 1"), std::string::npos) << finding->evidence;
    EXPECT_EQ(finding->rank, both ? 0 : 1);
  }
}

// Steps that scatter by a tenth and more hide a burst from their lengths alone, as those of a sharded job over sockets:
// what only these steps are in, a range of its own, tells of it. What is in every step says nothing.
TEST(Bursts, ARangeOfItsOwnTellsOfThemInScatter) {
  const auto saves = [](int step) { return step % 8 == 7; };
  for (const bool own : {true, false}) {
    Noise noise(11);
    std::vector<double> scatter;
    for (int i = 0; i < 62; ++i) scatter.push_back(noise.Next());
    Job job = JobLongerBy([&](int step, int rank) {
      const double all = 10e6 + 8e6 * scatter[static_cast<std::size_t>(step)];
      return static_cast<std::int64_t>(std::max(0.0, all)) + (rank == 0 && saves(step) ? 36'000'000 : 0);
    });
    schema::RankTables& rank = job.ranks[0];
    const std::uint32_t name = trace::StringInterner(rank.strings, rank.string_bytes).Intern("torch.save");
    const schema::TlStepRanks& steps = job.timeline.tables.step_ranks;
    for (std::size_t i = 0; i < steps.rows(); ++i) {
      if (steps.rank[i] != 0) continue;
      rank.steps.Append(
          {.index = steps.index[i], .begin_ns = steps.begin_ns[i], .end_ns = steps.end_ns[i], .thread = 0});
      const bool burst = saves(static_cast<int>(steps.index[i]));
      if (burst || !own)
        rank.ranges.Append({.begin_ns = steps.begin_ns[i],
                            .duration_ns = own     ? 36'000'000
                                           : burst ? 42'000'000
                                                   : 6'000'000,
                            .thread = 0,
                            .name = name,
                            .category = schema::Category::kCheckpoint});
    }
    const analysis::Analysis analysis = job.Analyze();
    const analysis::Finding* finding = Find(analysis, "burst.periodic");
    ASSERT_EQ(finding != nullptr, own) << (finding == nullptr ? "" : finding->headline);
    if (!own) continue;
    EXPECT_EQ(finding->headline.rfind("Every 8 steps rank 0 is in \"torch.save\" (checkpoint)", 0), 0u)
        << finding->headline;
    EXPECT_NEAR(static_cast<double>(*finding->saves_ns_per_step), 7 * 36e6 / 60, 0.2 * 7 * 36e6 / 60);
  }
}

TEST(Bursts, WithoutAPeriodAreNone) {
  EXPECT_EQ(
      Find(Bursts([](int step, int) { return step == 9 || step == 14 || step == 31 || step == 34 || step == 50; }),
           "burst.periodic"),
      nullptr);
  EXPECT_EQ(Find(Bursts([](int, int) { return false; }), "burst.periodic"), nullptr);
  // Below the scatter.
  EXPECT_EQ(Find(Bursts([](int step, int) { return step % 10 == 5; }, 300'000), "burst.periodic"), nullptr);
}

}  // namespace
}  // namespace lockstep::test
