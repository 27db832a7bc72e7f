// What launches and synchronisations prove about a GPU's clock, and that it holds.

#include "trace/decode/decode_gpu_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string_view>

#include "trace/decode/gpu_clock_shift.h"
#include "trace/file/strings.h"

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

// The same as a trace without rows of synchronisation shows it: calls of this name that wait.
schema::RankTables WithoutRows(schema::RankTables t, std::string_view name) {
  StringInterner strings(t.strings, t.string_bytes);
  for (std::size_t i = 0; i < t.sync.rows(); ++i)
    for (std::size_t call = 0; call < t.api.rows(); ++call)
      if (t.api.correlation[call] == t.sync.correlation[i]) {
        t.api.name[call] = strings.Intern(name);
        t.api.duration_ns[call] = t.sync.duration_ns[i];
      }
  t.sync = {};
  return t;
}

GpuClockShift Shift(const schema::RankTables& tables) {
  const std::vector<GpuClockEvidence> evidence = CompareGpuTimes(tables);
  EXPECT_EQ(evidence.size(), 1u);
  return evidence.empty() ? GpuClockShift{} : FindShift(evidence[0]);
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

// The least launch takes 3 us, and the fastest wait returns 6 us after the work.
TEST(GpuShifts, AnOffsetIsTakenBackToWhatLaunchesAndWaitsAllow) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    const bool large = seed % 2 == 0;
    const auto off = static_cast<std::int64_t>(random() % (large ? 5'000'000 : 40'000)) - (large ? 0 : 20'000);
    for (const int sign : {1, -1}) {
      const schema::RankTables told = Job([&](std::int64_t) { return sign * off; }, 3 + seed, 0, seed, 3 + seed % 2);
      for (const schema::RankTables& t :
           {told, WithoutRows(told, "cudaDeviceSynchronize"), WithoutRows(told, "hipDeviceSynchronize"),
            WithoutRows(told, "cudaStreamSynchronize")}) {
        const GpuClockShift shift = Shift(t);
        const std::int64_t left = sign * off + shift.move_ns;
        EXPECT_GE(left, -12'000) << seed << " " << sign * off;
        EXPECT_LE(left, 25'000) << seed << " " << sign * off;
        EXPECT_EQ(shift.error_ns, 0) << seed << " " << sign * off;
        EXPECT_LE(std::abs(left), std::abs(off)) << seed;
      }
    }
  }
}

TEST(GpuShifts, ClocksThatAgreeMoveNothing) {
  for (unsigned seed = 1; seed <= 20; ++seed)
    for (const std::uint8_t kind : {1, 3, 4}) {
      const schema::RankTables told = Job([](std::int64_t) { return 0; }, 30, seed % 3, seed, kind);
      for (const schema::RankTables& t :
           {told, WithoutRows(told, "cudaDeviceSynchronize"), WithoutRows(told, "cudaEventSynchronize")}) {
        const GpuClockShift shift = Shift(t);
        EXPECT_FALSE(shift.disagree());
        EXPECT_EQ(shift.odd_starts + shift.odd_returns, 0u);
      }
    }
}

TEST(GpuShifts, ADriftHasABoundAndNoMove) {
  for (const double ppm : {-1000.0, 1000.0}) {
    const auto off = [&](std::int64_t t) {
      return static_cast<std::int64_t>(ppm * 1e-6 * static_cast<double>(t - 5 * kSecond));
    };
    const schema::RankTables tables =
        Job([&](std::int64_t t) { return off(t) - off(5 * kSecond + kSecond / 5); }, 50, 0, 5);
    const GpuClockShift shift = Shift(tables);
    EXPECT_EQ(shift.move_ns, 0);
    EXPECT_GE(shift.error_ns, 150'000) << ppm;
    EXPECT_LE(shift.error_ns, 300'000) << ppm;
    EXPECT_EQ(Compare(tables).contradicted_ns, shift.error_ns);
  }
}

// Single records that are wrong, whichever way, are counted and move nothing; with a clock that is off they do not hide
// it.
TEST(GpuShifts, FewWrongRecordsMoveNothing) {
  for (const std::int64_t off : {0, -3'000'000}) {
    const schema::RankTables right = Job([&](std::int64_t) { return off; }, 20, 0, 7);
    const std::int64_t move = Shift(right).move_ns;
    schema::RankTables t = right;
    t.kernels.begin_ns[42] -= kSecond;
    GpuClockShift shift = Shift(t);
    EXPECT_EQ(shift.move_ns, move);
    EXPECT_EQ(shift.odd_starts, 1u);
    EXPECT_EQ(shift.error_ns, 0);
    t = right;
    t.kernels.duration_ns[49] += kSecond;  // The last before a wait.
    shift = Shift(t);
    EXPECT_EQ(shift.move_ns, move);
    EXPECT_EQ(shift.odd_returns, 1u);
    EXPECT_EQ(shift.error_ns, 0);
    t = right;
    t.kernels.duration_ns[42] += kSecond;
    EXPECT_EQ(Shift(t).move_ns, move);
    t.sync.kind[3] = schema::SyncKind::kUnknown;
    t.api.result[43] = 700;
    EXPECT_EQ(Shift(t).move_ns, move);
  }
}

// Waits return 5 us before what they waited for, and another stream was done long before.
TEST(GpuShifts, AWaitOfOneOfSeveralStreamsIsForWhatEndsBesideIt) {
  schema::RankTables t = Job([](std::int64_t) { return 0; }, 20, 0, 3);
  for (std::size_t i = 0; i < t.sync.rows(); ++i) {
    const std::int64_t end = t.kernels.begin_ns[10 * i + 9] + t.kernels.duration_ns[10 * i + 9];
    t.sync.duration_ns[i] = end - 5'000 - t.sync.begin_ns[i];
  }
  for (std::size_t i = 0; i < 200; i += 10) t.kernels.stream[i] = 20;
  const GpuClockShift shift = Shift(WithoutRows(t, "cudaStreamSynchronize"));
  EXPECT_EQ(shift.move_ns, -5'000);
  EXPECT_EQ(shift.error_ns, 0);
}

// A wait for another stream, of which the trace does not tell that, proves nothing: its stream is known to be done only
// where something ended just before it returned.
TEST(GpuShifts, AWaitOfAnUnknownStreamProvesLittle) {
  schema::RankTables t = Job([](std::int64_t) { return 0; }, 20, 0, 3);
  StringInterner strings(t.strings, t.string_bytes);
  const std::uint32_t name = strings.Intern("cudaStreamSynchronize");
  const std::size_t kernels = t.kernels.rows();
  for (std::size_t i = 0; i < kernels; ++i) {
    t.api.Append(
        {.begin_ns = t.kernels.begin_ns[i] - 90'000, .duration_ns = 1'000, .kind = 1, .correlation = 9000 + i});
    t.kernels.Append({.begin_ns = t.kernels.begin_ns[i] - 80'000,
                      .duration_ns = 100'000,
                      .context = 1,
                      .stream = 20,
                      .correlation = 9000 + i});
    t.api.Append({.begin_ns = t.kernels.begin_ns[i] - 80'000, .duration_ns = 110'000, .name = name, .kind = 3});
  }
  EXPECT_FALSE(Shift(t).disagree());
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
