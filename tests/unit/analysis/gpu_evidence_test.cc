// When a slow rank's GPU is told as the cause, and when not.

#include <gtest/gtest.h>

#include "analysis/stragglers/straggler_cause.h"
#include "analysis/words/render.h"

namespace lockstep::analysis {
namespace {

GpuRow Gpu(std::int32_t rank, std::optional<std::int64_t> clock, std::int64_t throttled = 0,
           std::uint64_t reasons = 0) {
  GpuRow row;
  row.rank = rank;
  row.device = 0;
  row.name = "NVIDIA H200";
  row.samples = 50;
  row.throttled = throttled;
  row.sm_clock_mhz = clock;
  row.throttle_reasons = reasons;
  return row;
}

Analysis Of(std::vector<GpuRow> gpus) {
  Analysis analysis;
  analysis.gpus = std::move(gpus);
  return analysis;
}

TEST(GpuEvidence, ALowerClockIsTold) {
  const Analysis analysis = Of({Gpu(0, 1980), Gpu(1, 1200, 50, 64 | 8), Gpu(2, 1965), Gpu(3, 1980)});
  const auto evidence = SlowClockOf(analysis, 1);
  ASSERT_TRUE(evidence.has_value());
  EXPECT_EQ(evidence->others_sm_clock_mhz, 1980);
  EXPECT_EQ(Rendered(ClauseOf(*evidence)),
            "its GPU's clock is 1200 MHz (median of 50 samples), the others' 1980 MHz, throttled in 50 of 50 samples: "
            "hardware slowdown, heat (hardware)");
  EXPECT_FALSE(SlowClockOf(analysis, 0).has_value());
  EXPECT_FALSE(SlowClockOf(analysis, 2).has_value()) << "15 MHz is a step of the clock";
  EXPECT_FALSE(SlowClockOf(analysis, 7).has_value()) << "its sensors were not read";
}

TEST(GpuEvidence, WhatAllHaveIsNobodysCause) {
  // Every GPU at its power cap, all clocks alike.
  const Analysis capped = Of({Gpu(0, 1755, 50, 4), Gpu(1, 1755, 50, 4), Gpu(2, 1755, 50, 4)});
  EXPECT_FALSE(SlowClockOf(capped, 1).has_value());
  // Reasons, but no lower clock than the others'.
  const Analysis same = Of({Gpu(0, 1980), Gpu(1, 1980, 40, 4), Gpu(2, 1980)});
  EXPECT_FALSE(SlowClockOf(same, 1).has_value());
  // One GPU alone: nothing to compare it with.
  EXPECT_FALSE(SlowClockOf(Of({Gpu(0, 1200, 50, 64)}), 0).has_value());
}

TEST(GpuEvidence, ThrottledWithoutAClockThatIsKnown) {
  const Analysis analysis = Of({Gpu(0, std::nullopt), Gpu(1, std::nullopt, 25, 128), Gpu(2, std::nullopt)});
  const auto evidence = SlowClockOf(analysis, 1);
  ASSERT_TRUE(evidence.has_value());
  EXPECT_EQ(Rendered(ClauseOf(*evidence)), "its GPU is throttled in 25 of 50 samples: power brake");
}

TEST(GpuEvidence, OtherModelsAreNotCompared) {
  std::vector<GpuRow> gpus = {Gpu(0, 1980), Gpu(1, 1410), Gpu(2, 1410)};
  gpus[1].name = gpus[2].name = "NVIDIA A100";
  EXPECT_FALSE(SlowClockOf(Of(gpus), 1).has_value());
}

}  // namespace
}  // namespace lockstep::analysis
