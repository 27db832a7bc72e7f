// Clocks of other profilers, and how their times become ticks.

#include "runtime/cupti/foreign_clock.h"

#include <gtest/gtest.h>
#include <time.h>

#include <cmath>
#include <cstddef>

#include "core/ring_writer.h"

namespace lockstep::cupti {
namespace {

std::int64_t g_offset_ns = 0;
double g_unit_ns = 1;

std::uint64_t Theirs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  const auto ns = static_cast<double>(now.tv_sec - 1) * 1e9 + static_cast<double>(now.tv_nsec);
  return static_cast<std::uint64_t>(ns / g_unit_ns) + static_cast<std::uint64_t>(g_offset_ns);
}

void Wait(std::uint64_t ms) {
  for (const std::uint64_t end = ring::Ticks() + ms * 1'000'000; ring::Ticks() < end;) {
  }
}

// As in a process that is recorded, with ticks that are nanoseconds of CLOCK_MONOTONIC_RAW. Without a segment the
// probe's clock stands still.
class ForeignClock : public ::testing::Test {
 protected:
  void SetUp() override {
    alignas(SegmentHeader) static std::byte segment[sizeof(SegmentHeader)];
    lockstep_probe.segment = reinterpret_cast<SegmentHeader*>(segment);
    lockstep_probe.clock.mode = ClockMode::kRaw;
    ASSERT_GT(ring::Ticks(), 0u);
    g_offset_ns = 5'000'000'000'000;
    g_unit_ns = 1;
  }
  void TearDown() override {
    lockstep_probe.segment = segment_;
    lockstep_probe.clock.mode = mode_;
  }
  void Follow(int times) {
    for (int i = 0; i < times; ++i) {
      clocks_.Follow(Theirs, 1);
      Wait(3);
    }
  }
  // How far a moment is misplaced.
  double Error() {
    const ClockPair pair = ReadPair(Theirs);
    return std::abs(static_cast<double>(
        static_cast<std::int64_t>(clocks_.Scale(Theirs, pair.ticks).Ticks(pair.time) - pair.ticks)));
  }
  ForeignClocks clocks_;

 private:
  SegmentHeader* const segment_ = lockstep_probe.segment;
  const ClockMode mode_ = lockstep_probe.clock.mode;
};

TEST_F(ForeignClock, IsTheSameOnlyIfItSaysTheSame) {
  EXPECT_TRUE(SameClock(OurTicks, [] { return OurTicks(); }));
  EXPECT_TRUE(SameClock(nullptr, RealtimeNs));
  EXPECT_FALSE(SameClock(OurTicks, nullptr));
  EXPECT_FALSE(SameClock(OurTicks, Theirs));
  EXPECT_FALSE(clocks_.Scale(OurTicks, 0).foreign);
}

TEST_F(ForeignClock, TimesAreConverted) {
  Follow(5);
  EXPECT_LT(Error(), 1e6);
}

TEST_F(ForeignClock, ItsUnitIsLearnt) {
  g_unit_ns = 0.25;
  Follow(8);
  EXPECT_LT(Error(), 1e6);
}

TEST_F(ForeignClock, WhatWasStampedBeforeItWasSetIsRefused) {
  Follow(3);
  const std::uint64_t before = ring::Ticks(), time = Theirs();
  EXPECT_NE(clocks_.Scale(Theirs, before).Ticks(time), 0u);
  g_offset_ns += 2'000'000'000;
  Wait(2);
  Follow(3);
  EXPECT_EQ(clocks_.Scale(Theirs, before).Ticks(time), 0u);
  EXPECT_LT(Error(), 1e6);
}

TEST_F(ForeignClock, AnUnknownOneIsRefused) {
  const TimeScale scale = clocks_.Scale(Theirs, ring::Ticks());
  EXPECT_TRUE(scale.foreign);
  EXPECT_EQ(scale.Ticks(Theirs()), 0u);
}

}  // namespace
}  // namespace lockstep::cupti
