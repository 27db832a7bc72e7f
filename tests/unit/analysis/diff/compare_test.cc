#include "analysis/diff/compare.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "analysis/report/diff.h"
#include "analysis/words/render.h"
#include "tests/unit/analysis/diff/runs.h"

namespace lockstep::test {
namespace {

using diff::CauseKind;
using diff::Verdict;

const diff::Cause* Find(const diff::Comparison& comparison, CauseKind kind) {
  for (const diff::Cause& cause : comparison.causes)
    if (cause.kind == kind) return &cause;
  return nullptr;
}

// Kernels that take the same time in every step.
struct KernelOf {
  const char* name;
  double per_step, step_ns;
};
diff::NamesSample Kernels(double per_step, const std::vector<KernelOf>& kernels) {
  diff::NamesSample names;
  names.kernels_per_step = per_step;
  names.recorded[0] = true;
  const auto sure = [](double value) { return diff::Spread{value, value, value, 60}; };
  for (const KernelOf& kernel : kernels)
    names.rows.push_back({diff::NameKind::kKernel, kernel.name, sure(kernel.per_step), sure(kernel.step_ns)});
  return names;
}

std::string WhyNot(const diff::RunSample& base, const diff::RunSample& now) {
  const auto comparison = diff::Compare(base, now, diff::ParseLimits(diff::kDefaultLimits).value());
  return comparison.ok() ? "" : comparison.error().what;
}

TEST(Diff, ARunGivenTwiceIsRefused) {
  const auto run = SampleRun(MakeRun({}, 1), "run");
  const auto limits = diff::ParseLimits(diff::kDefaultLimits).value();
  const auto twice = diff::Compare(run, run, limits);
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().code, ErrorCode::kUsage);
  auto copy = run;
  copy.label = "copy";
  EXPECT_EQ(diff::Compare(run, copy, limits).error().where, "run and copy");
  // A later job may have its id, and an equal one another.
  EXPECT_TRUE(diff::Compare(run, SampleRun(MakeRun({}, 2), "later"), limits).ok());
  copy.run_id = "another";
  EXPECT_TRUE(diff::Compare(run, copy, limits).ok());
}

TEST(Diff, TheLimitDecidesTheExitCodeOnly) {
  PairSpec base_spec, slower;
  base_spec.noise = slower.noise = 0.002;
  slower.factor = 1.02;
  const auto base = SampleRun(MakeRun(base_spec, 1), "base"), now = SampleRun(MakeRun(slower, 2), "new");
  for (const auto& [limit, beyond] :
       {std::pair("step_ns:+3%", false), {"step_ns:+1%", true}, {"step_ns:+5ms", false}}) {
    const auto comparison = CompareRuns(base, now, limit);
    EXPECT_EQ(comparison.verdict, Verdict::kWorse) << limit;
    EXPECT_EQ(comparison.measures[0].beyond_limit, beyond) << limit;
    EXPECT_EQ(comparison.regression, beyond) << limit;
    EXPECT_NE(comparison.sentence.find(" slower: "), std::string::npos) << comparison.sentence;
    EXPECT_NE(comparison.sentence.find(" %, interval +1."), std::string::npos) << comparison.sentence;
  }
  const auto faster = CompareRuns(now, base);
  EXPECT_EQ(faster.verdict, Verdict::kBetter);
  EXPECT_FALSE(faster.measures[0].beyond_limit);
  EXPECT_NE(faster.sentence.find(" faster: "), std::string::npos) << faster.sentence;
  // What it is of no matter: one that nobody asked for, too.
  EXPECT_FALSE(CompareRuns(base, now, "compute_ns:+3%").regression);
  const auto none = CompareRuns(base, SampleRun(MakeRun(base_spec, 3), "again"));
  EXPECT_EQ(none.verdict, Verdict::kSame);
  EXPECT_EQ(none.sentence.find("No difference is shown: a step takes "), 0u) << none.sentence;
}

TEST(Diff, OtherGpusAreComparedOnRequest) {
  auto base = SampleRun(MakeRun({}, 1), "base"), now = SampleRun(MakeRun({}, 2), "new");
  base.gpu_names = {"H100"}, now.gpu_names = {"H200"};
  const auto limits = diff::ParseLimits(diff::kDefaultLimits).value();
  const auto refused = diff::Compare(base, now, limits);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().hint.find("--other-gpus"), std::string::npos) << refused.error().hint;
  const auto asked = diff::Compare(base, now, limits, true);
  ASSERT_TRUE(asked.ok()) << asked.error().what;
  EXPECT_EQ(asked.value().remarks, std::vector<std::string>{"the runs used different GPUs: H100 against H200"});
  base.gpu_names = now.gpu_names;
  EXPECT_TRUE(diff::Compare(base, now, limits, true).value().remarks.empty());
}

// As its baseline has it, which does not say of which run it is.
diff::RunSample OfBaseline(diff::RunSample run) {
  run.run_id.clear();
  return run;
}

TEST(Diff, ARunIsTheSameAsItsBaseline) {
  const auto run = SampleRun(MakeRun({}, 1), "run");
  const auto comparison = CompareRuns(OfBaseline(run), run);
  for (const auto& result : comparison.measures) EXPECT_EQ(result.verdict, Verdict::kSame) << result.measure->name;
  EXPECT_TRUE(comparison.causes.empty());
  EXPECT_FALSE(comparison.regression);
}

TEST(Diff, OtherBucketsAreNamed) {
  PairSpec many, few;
  few.buckets = 2;
  few.bucket_bytes = 2'500'000;
  const auto comparison = CompareRuns(SampleRun(MakeRun(many, 1), "base"), SampleRun(MakeRun(few, 2), "new"));
  const diff::Cause* cause = Find(comparison, CauseKind::kBuckets);
  ASSERT_NE(cause, nullptr);
  EXPECT_EQ(cause->what, "all-reduce");
  EXPECT_NE(cause->sentence.find("5 x 1 MB became 2 x 2.5 MB"), std::string::npos) << cause->sentence;
}

TEST(Diff, WhatRanksAreBlockedInIsNamed) {
  JobSpec spec;
  spec.blocking = true;
  spec.buckets = 1;
  spec.compute = [](int step, int rank) { return 40'000'000 + (step * 7 + rank) % 5 * 30'000; };
  const diff::RunSample base = SampleRun(Simulate(spec), "base");
  const auto compute = spec.compute;
  spec.compute = [=](int step, int rank) { return compute(step, rank) + 3'100'000; };
  spec.blocked_ns = [](int, int) { return 3'100'000; };
  const diff::RunSample now = SampleRun(Simulate(spec), "now");
  const auto sentences = [](const diff::RunSample& before, const diff::RunSample& after) {
    std::string text;
    for (const diff::Cause& cause : CompareRuns(before, after).causes)
      text += std::string(Name(cause.kind)) + ": " + cause.sentence + "\n";
    return text;
  };
  const std::string text = sentences(base, now);
  EXPECT_NE(text.find("blocked: ranks are blocked 3.1 ms longer per step (new): sleep (train.py:32)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("all_ranks: all ranks are blocked 3.1 ms longer per step"), std::string::npos) << text;
  EXPECT_NE(sentences(now, base).find("ranks are blocked 3.1 ms less per step (-100.0 %): sleep (train.py:32)"),
            std::string::npos);
  EXPECT_EQ(sentences(OfBaseline(now), now), "");
  // A baseline holds as much.
  const auto read = diff::ParseBaseline(diff::BaselineJson(now), "baseline.json");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(sentences(base, read.value()), text);
}

TEST(Diff, ComputeThatIncludesBlockedTimeIsNotComparedWithComputeThatDoesNot) {
  JobSpec spec;
  spec.blocking = true;
  spec.buckets = 1;
  Job job = Simulate(spec);
  AddLoss(job.timeline.tables, "BlockedNotRecorded", 0, 1);
  const diff::RunSample without = SampleRun(job, "without");
  const auto compute = spec.compute;
  spec.compute = [=](int step, int rank) { return compute(step, rank) + 5'000'000; };
  spec.blocked_ns = [](int, int) { return 3'000'000; };
  const diff::RunSample with = SampleRun(Simulate(spec), "with");
  const auto result = [](const diff::Comparison& comparison, std::string_view name) {
    for (const diff::MeasureResult& measure : comparison.measures)
      if (measure.measure->name == name)
        return std::string(Name(measure.verdict)) + ": " + (measure.reason ? Rendered(*measure.reason) : "");
    return std::string("absent");
  };
  const diff::Comparison comparison = CompareRuns(without, with);
  EXPECT_EQ(comparison.verdict, Verdict::kWorse);
  EXPECT_EQ(result(comparison, "blocked_ns"), "cannot tell: the base run does not have this measure");
  EXPECT_EQ(result(comparison, "compute_ns"),
            "cannot tell: blocked time was recorded in the new run only: compute of the other includes it");
  ASSERT_NE(Find(comparison, CauseKind::kAllRanks), nullptr);
  EXPECT_NE(Find(comparison, CauseKind::kAllRanks)->sentence.find("all ranks compute or are blocked 5 ms longer"),
            std::string::npos);
  EXPECT_EQ(Find(comparison, CauseKind::kBlocked), nullptr);
  EXPECT_EQ(result(CompareRuns(OfBaseline(without), without), "compute_ns"), "same: ");
  EXPECT_EQ(result(CompareRuns(OfBaseline(without), without), "blocked_ns"), "absent");
}

TEST(Diff, WhatCannotBeComparedIsRefused) {
  const auto run = SampleRun(MakeRun({}, 1), "run");
  auto other = run;
  other.ranks = 8;
  EXPECT_NE(WhyNot(run, other).find("4 ranks against 8 ranks"), std::string::npos);
  other = run;
  other.gpu_ranks = 4;
  EXPECT_NE(WhyNot(run, other).find("a CPU run against a GPU run"), std::string::npos);
  other = run;
  other.steps_kind = "signature";
  EXPECT_NE(WhyNot(run, other).find("different kinds of steps"), std::string::npos);
  other = run;
  other.gpu_names = {"H200"};
  EXPECT_NE(WhyNot(run, other).find("different GPUs: none against H200"), std::string::npos);
  other = run;
  other.classes = "hta";
  EXPECT_NE(WhyNot(run, other).find("classified in two ways"), std::string::npos);
}

// `steps` of them count.
diff::RunSample Short(int steps, double factor, std::uint64_t seed) {
  PairSpec spec;
  spec.steps = steps + 2;
  spec.factor = factor;
  return SampleRun(MakeRun(spec, seed), "short");
}

TEST(Diff, FewStepsDecideOnlyLargeChanges) {
  const auto base = SampleRun(MakeRun({}, 1), "base");
  // Two steps do not say how much they differ by themselves.
  for (const auto& [steps, factor] : {std::pair(19, 1.08), {5, 1.08}, {2, 1.5}, {1, 3.0}}) {
    const auto now = Short(steps, factor, 2);
    for (const auto& comparison : {CompareRuns(base, now), CompareRuns(now, base)}) {
      EXPECT_EQ(comparison.verdict, Verdict::kCannotTell) << steps << " " << factor;
      EXPECT_FALSE(comparison.regression);
      EXPECT_NE(comparison.sentence.find("20 complete steps"), std::string::npos) << comparison.sentence;
    }
  }
  for (const int steps : {4, 8, 19}) {
    const auto now = Short(steps, 1.5, 2);
    const auto comparison = CompareRuns(base, now);
    EXPECT_EQ(comparison.verdict, Verdict::kWorse) << steps;
    EXPECT_NE(comparison.sentence.find(", from 60 steps and " + std::to_string(steps)), std::string::npos)
        << comparison.sentence;
    EXPECT_FALSE(comparison.causes.empty());
    EXPECT_EQ(CompareRuns(now, base).verdict, Verdict::kBetter) << steps;
  }
  EXPECT_EQ(CompareRuns(Short(20, 1, 1), Short(20, 1.5, 2)).verdict, Verdict::kWorse);
}

TEST(Diff, FewStepsOfNothingChangedAreNeverTheSameNorAnother) {
  std::size_t decided = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed)
    for (const int steps : {3, 6}) {
      PairSpec drifting;
      drifting.steps = steps + 2, drifting.slow = 0.03, drifting.memory = 0.9;
      const auto comparison =
          CompareRuns(SampleRun(MakeRun(drifting, seed), "base"), SampleRun(MakeRun(drifting, seed + 1000), "new"));
      EXPECT_NE(comparison.verdict, Verdict::kSame);
      decided += comparison.verdict != Verdict::kCannotTell;
    }
  EXPECT_LE(decided, 2u) << "of 120 whose level wanders by 3 %";
}

// What one rank does in a step is the same thing in both.
TEST(Diff, OtherNumbersOfRanksCompareKernelsOnly) {
  auto base = SampleRun(MakeRun({}, 1), "base"), now = base;
  base.names = Kernels(100, {{"gemm", 50, 5e6}});
  now.names = Kernels(300, {{"gemm", 150, 15e6}});
  now.ranks = 2;
  now.rank_samples.resize(2);
  const auto comparison = CompareRuns(base, now);
  EXPECT_EQ(comparison.verdict, Verdict::kCannotTell);
  EXPECT_NE(comparison.sentence.find("4 ranks against 2 ranks"), std::string::npos) << comparison.sentence;
  EXPECT_FALSE(comparison.regression);
  ASSERT_NE(Find(comparison, CauseKind::kKernel), nullptr);
  for (const diff::Cause& cause : comparison.causes)
    EXPECT_TRUE(cause.kind == CauseKind::kKernel || cause.kind == CauseKind::kKernelsPerStep) << Name(cause.kind);
}

TEST(Diff, MeansOverOtherRanksSayNothing) {
  PairSpec slower;
  slower.factor = 1.5;
  const auto base = SampleRun(MakeRun({}, 1), "base");
  auto now = SampleRun(MakeRun(slower, 2), "new");
  now.rank_samples.resize(2);
  const auto comparison = CompareRuns(base, now);
  EXPECT_EQ(comparison.verdict, Verdict::kWorse) << "the job's step is the same thing";
  for (const diff::MeasureResult& result : comparison.measures) {
    const bool of_job = result.measure->name == std::string_view("step_ns");
    EXPECT_EQ(result.verdict, of_job ? Verdict::kWorse : Verdict::kCannotTell) << result.measure->name;
  }
}

TEST(Diff, LimitsDecideWhatIsARegression) {
  PairSpec slower;
  slower.factor = 1.05;
  const auto base = SampleRun(MakeRun({}, 1), "base"), now = SampleRun(MakeRun(slower, 2), "new");
  EXPECT_TRUE(CompareRuns(base, now).regression);
  EXPECT_FALSE(CompareRuns(base, now, "step_ns:+10%").regression);
  EXPECT_TRUE(CompareRuns(base, now, "step_ns:+1ms").regression);
  EXPECT_FALSE(CompareRuns(base, now, "step_ns:+3ms").regression);
  EXPECT_TRUE(CompareRuns(base, now, "compute_ns:+3%").regression);
  EXPECT_FALSE(CompareRuns(base, now, "exposed_transfer_ns:+3%").regression);
  // Better is no regression.
  EXPECT_FALSE(CompareRuns(now, base).regression);
  EXPECT_EQ(CompareRuns(now, base).verdict, Verdict::kBetter);
}

TEST(Diff, LimitsThatMakeNoSense) {
  for (const char* text :
       {"", "step_ns", "step_ns:", "step_ns:fast", "steps:+3%", "step_ns:+3", "step_ns:-3%", "step_ns:+3%,step_ns:+4%",
        "overlap_fraction:+3%", "overlap_fraction:-3ms", "step_ns:+nan%", "step_ns:+3parsec"}) {
    const auto limits = diff::ParseLimits(text);
    EXPECT_FALSE(limits.ok()) << text;
    if (!limits.ok()) {
      EXPECT_EQ(limits.error().code, ErrorCode::kUsage) << text;
    }
  }
  EXPECT_TRUE(diff::ParseLimits("step_ns:3%, overlap_fraction:-5 %").ok());
}

TEST(Diff, ABaselineStandsForItsRun) {
  PairSpec slower;
  slower.factor = 1.05;
  slower.slowed = 2;
  const auto base = SampleRun(MakeRun({}, 1), "base"), now = SampleRun(MakeRun(slower, 2), "new");
  const std::string text = diff::BaselineJson(base);
  EXPECT_LT(text.size(), 20'000u);
  auto again = diff::ParseBaseline(text, "base");
  ASSERT_TRUE(again.ok()) << again.error().what;
  EXPECT_EQ(diff::BaselineJson(again.value()), text);
  const auto direct = CompareRuns(base, now), through = CompareRuns(again.value(), now);
  ASSERT_EQ(direct.measures.size(), through.measures.size());
  for (std::size_t i = 0; i < direct.measures.size(); ++i)
    EXPECT_EQ(direct.measures[i].verdict, through.measures[i].verdict);
  ASSERT_EQ(direct.causes.size(), through.causes.size());
  EXPECT_EQ(direct.sentence, through.sentence);
}

TEST(Diff, DamagedBaselinesAreErrors) {
  const std::string good = diff::BaselineJson(SampleRun(MakeRun({}, 1), "base"));
  for (const std::string& text : {std::string(), std::string("[]"), std::string("{}"), good.substr(0, good.size() / 2),
                                  std::string("{\"schema\": \"lockstep.analysis/1\"}"),
                                  std::string("{\"schema\": \"lockstep.baseline/2\", \"run\": 7}")}) {
    const auto parsed = diff::ParseBaseline(text, "base.json");
    EXPECT_FALSE(parsed.ok()) << text;
    if (!parsed.ok()) {
      EXPECT_EQ(parsed.error().code, ErrorCode::kMalformed);
    }
  }
}

TEST(Diff, RenderedFormsAgree) {
  PairSpec base, slower;
  base.noise = slower.noise = 0.005;
  slower.factor = 1.05;
  slower.slowed = 2;
  const auto comparison = CompareRuns(SampleRun(MakeRun(base, 1), "a|b"), SampleRun(MakeRun(slower, 2), "new"));
  const std::string text = report::RenderDiffText(comparison, {}), markdown = report::RenderDiffMarkdown(comparison);
  const auto json = nlohmann::json::parse(report::RenderDiffJson(comparison));
  EXPECT_EQ(json.at("verdict"), "worse");
  EXPECT_EQ(json.at("regression"), true);
  EXPECT_EQ(json.at("causes").at(0).at("rank"), 2);
  EXPECT_EQ(json.at("measures").at(0).at("name"), "step_ns");
  EXPECT_GT(json.at("measures").at(0).at("relative_low"), 0.0);
  for (const std::string& out : {text, markdown}) {
    EXPECT_NE(out.find("rank 2"), std::string::npos) << out;
    EXPECT_NE(out.find("worse"), std::string::npos) << out;
  }
  EXPECT_NE(markdown.find("a\\|b"), std::string::npos) << markdown;
  for (const char c : text) EXPECT_NE(c, '\x1b');
}

TEST(DiffMarkdown, NamesAreText) {
  PairSpec base, slower;
  slower.factor = 1.05;
  const std::string hostile =
      "a|b\n# Heading\n<img src=x>[link](http://example.com)![p](http://example.com/x.png)`code`*x*\x1b[31m\u202e";
  const auto comparison = CompareRuns(SampleRun(MakeRun(base, 1), hostile), SampleRun(MakeRun(slower, 2), hostile));
  const std::string markdown = report::RenderDiffMarkdown(comparison);
  for (const char* active : {"a|b", "\n# Heading", "<img", "[link]", "![p]", "`code`", "*x*", "\x1b", "\u202e"}) {
    std::size_t at = markdown.find(active);
    while (at != std::string::npos && at > 0 && markdown[at - 1] == '\\') at = markdown.find(active, at + 1);
    EXPECT_EQ(at, std::string::npos) << active << " in " << markdown;
  }
  EXPECT_NE(markdown.find("\\\\x1b"), std::string::npos) << markdown;
}

// Functors stay: without them kernels of one template are one.
TEST(Diff, KernelsByWhatTellsThemApart) {
  PairSpec spec;
  auto base = SampleRun(MakeRun(spec, 1), "base"), now = base;
  base.names =
      Kernels(10, {{"elementwise_kernel<CUDAFunctor_add>", 5, 5e6}, {"elementwise_kernel<MulFunctor>", 5, 1e6}});
  now.names =
      Kernels(10, {{"elementwise_kernel<CUDAFunctor_add>", 5, 1e6}, {"elementwise_kernel<MulFunctor>", 5, 1e6}});
  const auto comparison = CompareRuns(base, now);
  const diff::Cause* cause = Find(comparison, CauseKind::kKernel);
  ASSERT_NE(cause, nullptr);
  EXPECT_EQ(cause->what, "elementwise_kernel<CUDAFunctor_add>");
}

TEST(Diff, ChangesOfKernelsAreNamed) {
  auto base = SampleRun(MakeRun({}, 1), "base");
  base.gpu_ranks = 4;
  base.names = Kernels(100, {{"gemm", 50, 20e6}, {"softmax", 50, 5e6}});
  base.rank_samples[1].sm_clock_mhz = 1800;
  auto now = base;
  now.names = Kernels(150, {{"gemm", 50, 22e6}, {"copy", 100, 3e6}});
  now.rank_samples[1].sm_clock_mhz = 1200;
  const auto comparison = CompareRuns(base, now);
  ASSERT_NE(Find(comparison, CauseKind::kKernelsPerStep), nullptr);
  EXPECT_NE(Find(comparison, CauseKind::kKernelsPerStep)->sentence.find("100 kernels per step became 150"),
            std::string::npos);
  std::string all;
  for (const auto& cause : comparison.causes) all += cause.sentence + "\n";
  EXPECT_NE(all.find("kernel gemm takes 2 ms longer per step (+10.0 %), in as many launches (50)"), std::string::npos)
      << all;
  EXPECT_NE(all.find("kernel softmax is gone"), std::string::npos) << all;
  EXPECT_NE(all.find("kernel copy is new"), std::string::npos) << all;
  EXPECT_NE(all.find("rank 1's GPU runs at 1200 MHz instead of 1800"), std::string::npos) << all;
}

}  // namespace
}  // namespace lockstep::test
