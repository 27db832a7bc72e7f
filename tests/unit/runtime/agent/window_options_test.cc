// Capture-window options, and what an estimate makes of them.

#include "runtime/agent/window/window_options.h"

#include <gtest/gtest.h>

#include "runtime/agent/slot/estimate.h"

namespace lockstep::agent {
namespace {

WindowPlan Parse(const WindowFlags& flags) {
  const auto plan = ParseWindow(flags);
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().what);
  return plan.ok() ? plan.value() : WindowPlan{};
}

TEST(WindowOptions, NothingIsEverything) {
  const WindowPlan plan = Parse({});
  EXPECT_EQ(plan.kind, WindowKind::kAll);
  EXPECT_EQ(plan.text, "all");
  EXPECT_TRUE(plan.Includes(0) && plan.Includes(4095));
  EXPECT_EQ(Parse({.start = "on"}).kind, WindowKind::kAll);
}

TEST(WindowOptions, Steps) {
  const WindowPlan once = Parse({.steps = "110:310"});
  EXPECT_EQ(once.kind, WindowKind::kSteps);
  EXPECT_EQ((std::vector{once.begin_step, once.end_step, once.every_steps}), (std::vector<std::int64_t>{110, 310, 0}));
  EXPECT_EQ(Parse({.steps = "100:103/5000"}).every_steps, 5000);
  EXPECT_EQ(Parse({.steps = "0:10/10"}).every_steps, 10);
}

TEST(WindowOptions, Schedule) {
  const WindowPlan plan = Parse({.schedule = "wait=1,warmup=2,active=3,repeat=4,skip_first=5"});
  EXPECT_EQ(plan.kind, WindowKind::kSchedule);
  EXPECT_EQ((std::vector{plan.wait, plan.warmup, plan.active, plan.repeat, plan.skip_first}),
            (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
}

TEST(WindowOptions, RangesKnowTheirSource) {
  EXPECT_EQ(Parse({.range = "nvtx:a:b"}).range_name, "a:b");
  EXPECT_EQ(Parse({.range = "nvtx:a"}).range_source, 1u);
  EXPECT_EQ(Parse({.range = "lockstep:a"}).range_source, 0u);
  EXPECT_EQ(Parse({.range = "torch:a"}).range_source, 2u);
  EXPECT_EQ(Parse({.range = "other:a"}).range_name, "other:a");
  EXPECT_EQ(Parse({.range = "other:a"}).range_source, kRangeSourceAny);
  EXPECT_EQ(Parse({.range = "cuda"}).range_source, kRangeSourceCuda);
  EXPECT_EQ(Parse({.range = "a", .range_count = "7"}).range_count, 7u);
}

TEST(WindowOptions, TimesAndRequests) {
  const WindowPlan timer = Parse({.delay = "1.5", .duration = "2e-3"});
  EXPECT_EQ(timer.kind, WindowKind::kTimer);
  EXPECT_EQ((std::vector{timer.delay_ns, timer.duration_ns}), (std::vector<std::int64_t>{1'500'000'000, 2'000'000}));
  const WindowPlan signal = Parse({.duration = "3", .on_signal = "SIGUSR1", .signal_steps = "20", .align = "50"});
  EXPECT_EQ(signal.kind, WindowKind::kTrigger);
  EXPECT_EQ(signal.signal, SIGUSR1);
  EXPECT_EQ((std::vector{signal.trigger_steps, signal.align_steps, signal.duration_ns}),
            (std::vector<std::int64_t>{20, 50, 3'000'000'000}));
  EXPECT_EQ(Parse({.trigger = true}).duration_ns, 10'000'000'000);
}

TEST(WindowOptions, Ranks) {
  const WindowPlan plan = Parse({.ranks = "0,3,8:16"});
  for (const std::int32_t rank : {0, 3, 8, 15}) EXPECT_TRUE(plan.Includes(rank)) << rank;
  for (const std::int32_t rank : {1, 4, 7, 16}) EXPECT_FALSE(plan.Includes(rank)) << rank;
  const WindowPlan same = Parse({.ranks = "0,3,8-15"});
  EXPECT_EQ(same.ranks, plan.ranks);
}

TEST(WindowOptions, EveryErrorSaysWhatWhereAndWhatToDo) {
  const WindowFlags wrong[] = {{.steps = "5"},
                               {.steps = "3:3"},
                               {.steps = "+1:3"},
                               {.steps = "1: 3"},
                               {.steps = "1:3/"},
                               {.steps = "1:3/1"},
                               {.schedule = "active=0"},
                               {.schedule = "active=1,,"},
                               {.schedule = "active"},
                               {.range = "nvtx:"},
                               {.range = std::string(200, 'x')},
                               {.range = "a", .range_count = "0"},
                               {.range_count = "1"},
                               {.delay = "inf"},
                               {.delay = "1s"},
                               {.duration = "-1"},
                               {.on_signal = "TERM"},
                               {.on_signal = "USR1", .signal_steps = "0"},
                               {.start = "yes"},
                               {.ranks = "0,"},
                               {.ranks = "4:2"},
                               {.steps = "1:2", .schedule = "active=1"},
                               {.delay = "1", .start = "off"},
                               {.range = "", .duration = "1"}};
  std::size_t refused = 0;
  for (const WindowFlags& flags : wrong) {
    const auto plan = ParseWindow(flags);
    if (plan.ok()) continue;
    ++refused;
    EXPECT_EQ(plan.error().code, ErrorCode::kUsage);
    EXPECT_FALSE(plan.error().what.empty() || plan.error().where.empty() || plan.error().hint.empty());
  }
  EXPECT_EQ(refused, std::size(wrong) - 1);  // The last one is good.
}

TEST(WindowOptions, TheSpecificationIsThePlan) {
  WindowSpec spec{};
  FillSpec(Parse({.range = "nvtx:name", .range_count = "3", .step_range = "step"}), spec);
  EXPECT_EQ(spec.kind, WindowKind::kRange);
  EXPECT_STREQ(spec.range_name, "name");
  EXPECT_STREQ(spec.step_range, "step");
  EXPECT_EQ(spec.range_count, 3u);
  EXPECT_EQ(spec.armed_begin, -1);
}

TEST(Estimate, BytesPerStepAreOfStepsOnly) {
  StepBytes bytes;
  bytes.Add(0, 5000);   // Before the first step.
  bytes.Add(4, 5400);   // 100 each.
  bytes.Add(4, 5450);   // Within a step: of the next ones.
  bytes.Add(6, 5700);   // 150 each.
  bytes.Add(7, 99999);  // One that wrote much.
  EXPECT_EQ(bytes.steps(), 7);
  EXPECT_EQ(bytes.Median(), 100);
}

TEST(Estimate, SaysWhetherTheWindowFits) {
  const WindowPlan plan = Parse({.steps = "0:1000"});
  const std::vector<RankEstimate> ranks = {{0, 10, 1000, 1'000'000'000, 10, 100},
                                           {1, 10, 1000, 1'000'000'000, 10, 300}};
  const auto fits = DescribeEstimates(ranks, 2, plan, 1'000'000, 0);
  EXPECT_NE(fits.back().find("at most 300.0 kB per rank, --max-bytes is 1.0 MB: enough"), std::string::npos)
      << fits.back();
  EXPECT_NE(DescribeEstimates(ranks, 2, plan, 200'000, 0).back().find("cut short"), std::string::npos);
  EXPECT_NE(DescribeEstimates(ranks, 2, plan, 1'000'000, 350'000).back().find("not enough"), std::string::npos);
  EXPECT_NE(DescribeEstimates({{0, 10, 1000, 1'000'000'000, 0, 0}}, 1, plan, 1, 0).back().find("not known"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::agent
