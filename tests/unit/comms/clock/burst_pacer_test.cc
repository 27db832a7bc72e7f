#include "comms/clock/burst_pacer.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::clock {
namespace {

constexpr std::int64_t kSecond = BurstPacer::kSecond;

struct Paces {
  std::int64_t bursts = 0, longest = 0, shortest = BurstPacer::kMost;
  int trains = 0;  // Pauses of at most 1 s right after one of more than 8 s.
};

// Simulates `length_s` of bursts of a clock with this offset.
template <typename Offset>
Paces Simulate(double length_s, std::int64_t rtt_ns, Offset offset) {
  BurstPacer pacer;
  Paces run;
  std::int64_t now = 7 * kSecond, begin = now, last = 0;
  while (static_cast<double>(now - begin) < length_s * 1e9) {
    const std::int64_t pause =
        pacer.Next(now, static_cast<std::int64_t>(offset(static_cast<double>(now - begin) * 1e-9)), rtt_ns);
    EXPECT_GE(pause, BurstPacer::kLeast);
    EXPECT_LE(pause, BurstPacer::kMost);
    EXPECT_LE(pause, now - begin < BurstPacer::kLearn ? kSecond : BurstPacer::kMost);
    if (last > 8 * kSecond && pause <= kSecond) ++run.trains;
    ++run.bursts;
    run.longest = std::max(run.longest, pause);
    run.shortest = std::min(run.shortest, pause);
    last = pause;
    now += pause;
  }
  return run;
}

TEST(BurstPacer, SteadyClockIsMeasuredSeldom) {
  const Paces run = Simulate(3600, 10'000, [](double t) { return 1e12 + 50'000 * t; });
  EXPECT_EQ(run.longest, BurstPacer::kMost);
  EXPECT_LT(run.bursts, 600);
  EXPECT_GE(run.trains, 10);  // It keeps looking.
}

TEST(BurstPacer, WanderingClockIsMeasuredOften) {
  const Paces run = Simulate(3600, 10'000, [](double t) { return 50'000 * std::sin(2 * M_PI * t / 12); });
  EXPECT_LE(run.longest, 2 * kSecond);
  EXPECT_EQ(run.shortest, BurstPacer::kLeast);
}

TEST(BurstPacer, FirstMinuteIsAlwaysOneSecond) {
  const Paces run = Simulate(59.5, 10'000, [](double) { return 0.0; });
  EXPECT_EQ(run.bursts, 60);
}

}  // namespace
}  // namespace lockstep::clock
