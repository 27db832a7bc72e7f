// What launches and synchronisations prove about a GPU's clock, and that it holds.

#include "trace/decode/decode_gpu_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

namespace lockstep::trace {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

// A job whose GPU times are off by `off(t)`. `ahead`: steps that the host does not wait for the GPU between two waits.
schema::RankTables Job(const std::function<std::int64_t(std::int64_t)>& off, int steps, int ahead, unsigned seed,
                       std::uint8_t wait_kind = 3) {
  schema::RankTables t;
  std::mt19937 random(seed);
  const auto up_to = [&](int most) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(most)); };
  std::int64_t now = 5 * kSecond, gpu = 0;
  std::uint64_t correlation = 0;
  const auto call = [&](std::int64_t begin, std::int64_t end, std::uint8_t kind) {
    t.api.Append({.begin_ns = begin, .duration_ns = end - begin, .kind = kind, .correlation = ++correlation});
  };
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < 10; ++i) {
      const std::int64_t begin = std::max(gpu, now + 3'000 + up_to(6'000));
      gpu = begin + 500'000 + up_to(500'000);
      call(now, now + 2'000, 1);
      t.kernels.Append({.begin_ns = begin + off(begin),
                        .duration_ns = gpu + off(gpu) - begin - off(begin),
                        .device = 0,
                        .context = 1,
                        .stream = 7,
                        .correlation = correlation});
      now += 4'000 + up_to(3'000);
    }
    if (ahead != 0 && (step + 1) % ahead != 0) continue;
    std::uint64_t record = 0;
    if (wait_kind == 1) {
      call(now, now + 1'000, 6);
      record = correlation;
      now += 2'000;
    }
    const std::int64_t begin = now;
    now = std::max(now, gpu) + 6'000 + up_to(15'000);
    call(begin, now + 500, 3);
    t.sync.Append({.begin_ns = begin,
                   .duration_ns = now - begin,
                   .kind = wait_kind,
                   .device = 0,
                   .context = 1,
                   .stream = wait_kind == 3 ? 7 : schema::kNone,
                   .correlation = correlation,
                   .record_correlation = record,
                   .record_stream = wait_kind == 1 ? 7 : schema::kNone});
    now += 20'000 + up_to(50'000);
  }
  return t;
}

GpuClock Compare(const schema::RankTables& tables) {
  const std::vector<GpuClock> clocks = CompareGpuClocks(tables);
  EXPECT_EQ(clocks.size(), 1u);
  return clocks.empty() ? GpuClock{} : clocks[0];
}

TEST(GpuClocks, AClockThatAgreesIsBoundedCloselyAndViolatesNothing) {
  for (const std::uint8_t kind : {1, 3, 4})
    for (unsigned seed = 1; seed < 20; ++seed) {
      const GpuClock clock = Compare(Job([](std::int64_t) { return 0; }, 100, 0, seed, kind));
      ASSERT_TRUE(clock.bounded());
      EXPECT_LE(clock.low_ns, 0);
      EXPECT_GE(clock.high_ns, 0);
      EXPECT_LT(clock.error_ns(), 20'000);
      EXPECT_EQ(clock.early_starts, 0u);
      EXPECT_EQ(clock.early_returns, 0u);
    }
}

TEST(GpuClocks, AnOffsetIsFoundWithItsSign) {
  for (const std::int64_t off : {-3'000'000, -50'000, 50'000, 3'000'000})
    for (const int ahead : {0, 10}) {
      const GpuClock clock = Compare(Job([&](std::int64_t) { return off; }, 100, ahead, 3));
      ASSERT_TRUE(clock.bounded());
      EXPECT_LE(clock.low_ns, off);
      EXPECT_GE(clock.high_ns, off);
      EXPECT_LT(clock.high_ns - clock.low_ns, 40'000);
      EXPECT_GE(clock.error_ns(), std::abs(off));
      EXPECT_EQ(clock.early_starts > 0, off < 0);
      EXPECT_EQ(clock.early_returns > 0, off > 0);
      EXPECT_LE(clock.early_start_ns, std::max<std::int64_t>(-off, 0));
      EXPECT_LE(clock.early_return_ns, std::max<std::int64_t>(off, 0));
      EXPECT_GE(clock.early_start_ns + clock.early_return_ns, std::abs(off) - 30'000);
    }
}

TEST(GpuClocks, ADriftStaysWithinTheBound) {
  for (const double ppm : {-1000.0, -200.0, -50.0, -5.0, 5.0, 50.0, 200.0, 1000.0})
    for (const int steps : {50, 2000}) {
      const auto off = [&](std::int64_t t) {
        return static_cast<std::int64_t>(ppm * 1e-6 * static_cast<double>(t - 5 * kSecond));
      };
      const schema::RankTables tables = Job(off, steps, 0, 5);
      const GpuClock clock = Compare(tables);
      ASSERT_TRUE(clock.bounded());
      const std::int64_t last = off(tables.api.begin_ns.back());
      EXPECT_LE(clock.low_ns, std::min<std::int64_t>(last, 0)) << ppm << " " << steps;
      EXPECT_GE(clock.high_ns, std::max<std::int64_t>(last, 0)) << ppm << " " << steps;
      EXPECT_LT(clock.error_ns(), std::abs(last) + 400'000) << ppm << " " << steps;
    }
}

TEST(GpuClocks, AHostThatNeverWaitsProvesOneSideOnly) {
  schema::RankTables tables = Job([](std::int64_t) { return 0; }, 20, 1000, 1);
  const GpuClock clock = Compare(tables);
  EXPECT_FALSE(clock.bounded());
  EXPECT_EQ(clock.low_ns, schema::kNoTime);
  EXPECT_GE(clock.high_ns, 0);
  tables.api = {};
  EXPECT_TRUE(CompareGpuClocks(tables).empty());
}

// Waits that return early for other reasons, and work that nobody waited for, prove nothing.
TEST(GpuClocks, OnlyWhatWasWaitedForCounts) {
  schema::RankTables t = Job([](std::int64_t) { return 0; }, 10, 0, 2);
  // A wait that failed.
  t.api.Append({.begin_ns = 6 * kSecond, .duration_ns = 10, .kind = 3, .correlation = 9001, .result = 700});
  t.sync.Append(
      {.begin_ns = 6 * kSecond, .duration_ns = 10, .kind = 3, .context = 1, .stream = 7, .correlation = 9001});
  // Another stream's kernel, and one enqueued while somebody already waited.
  const std::int64_t at = 7 * kSecond;
  for (const std::uint32_t stream : {8u, 7u}) {
    t.api.Append(
        {.begin_ns = at - 500, .duration_ns = stream == 7 ? 2'000 : 100, .kind = 1, .correlation = 9100 + stream});
    t.kernels.Append(
        {.begin_ns = at + 100, .duration_ns = kSecond, .context = 1, .stream = stream, .correlation = 9100 + stream});
  }
  t.sync.Append({.begin_ns = at, .duration_ns = 5'000, .kind = 3, .context = 1, .stream = 7, .correlation = 9002});
  const GpuClock clock = Compare(t);
  EXPECT_EQ(clock.early_returns, 0u);
  EXPECT_EQ(clock.early_starts, 0u);
}

}  // namespace
}  // namespace lockstep::trace
