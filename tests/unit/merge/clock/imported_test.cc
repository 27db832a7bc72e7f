// Clocks of imported ranks: each its own, nothing but collectives between them.

#include <gtest/gtest.h>

#include "clock_world.h"
#include "gpu_job.h"

namespace lockstep::test {
namespace {

constexpr std::int64_t kMs = 1'000'000;

struct RankScore {
  double coverage = 0;
  std::int64_t error_max = 0, eps_p50 = 0, eps_max = 0;
};

struct Aligned {
  merge::AlignResult result;
  std::vector<RankScore> ranks;  // Against rank 0.
};

// Numbers, aligns and compares with the truth at all times of each trace.
Aligned Align(GpuJob& job, merge::ClockChoice choice = merge::ClockChoice::kAuto) {
  job.Run();
  (void)merge::NumberCollectives(job.files, 2);
  auto result = merge::AlignClocks(job.Align(), choice, 2);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().what);
  Aligned out;
  if (!result.ok()) return out;
  out.result = std::move(result).value();
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    constexpr int kSamples = 400;
    schema::Clock own;
    for (std::size_t i = 0; i < out.result.clock.rows(); ++i)
      if (out.result.clock.rank[i] == static_cast<int>(r)) own.Append(out.result.clock.Get(i));
    RankScore score;
    std::vector<std::int64_t> bounds;
    int inside = 0;
    for (int i = 0; i <= kSamples; ++i) {
      const std::int64_t t = job.begin_ns[r] + (job.end_ns[r] - job.begin_ns[r]) / kSamples * i;
      const auto [offset, eps] = Look(own, static_cast<int>(r), job.Local(r, t));
      // The reference's clock is cluster time.
      const std::int64_t error = std::llabs(job.Local(r, t) + offset - job.Local(0, t));
      score.error_max = std::max(score.error_max, error);
      bounds.push_back(eps);
      inside += error <= eps;
    }
    std::sort(bounds.begin(), bounds.end());
    score.coverage = static_cast<double>(inside) / (kSamples + 1);
    score.eps_p50 = bounds[bounds.size() / 2];
    score.eps_max = bounds.back();
    if (getenv("LOCKSTEP_TEST_VERBOSE") != nullptr)
      printf("rank %zu coverage %.4f error max %ld eps p50 %ld max %ld knots %zu method %d\n", r, score.coverage,
             score.error_max, score.eps_p50, score.eps_max, own.rows(), own.rows() > 0 ? own.method[0] : -1);
    out.ranks.push_back(score);
  }
  return out;
}

std::uint64_t Count(const Aligned& aligned, Loss loss) {
  std::uint64_t count = 0;
  for (const merge::AlignLoss& l : aligned.result.losses) count += l.loss == loss ? 1 : 0;
  return count;
}

// A trace of milliseconds: the drift is not seen, only bounded.
TEST(AlignImported, ShortTraces) {
  for (int trial = 0; trial < 20; ++trial) {
    GpuJob job(8);
    job.seed = static_cast<std::uint64_t>(trial);
    job.steps = 2;
    job.pause_ns = kMs;
    std::mt19937 random(static_cast<unsigned>(trial));
    for (std::size_t r = 1; r < 8; ++r)
      job.ranks[r].clock = {static_cast<std::int64_t>(random() % 10'000) * kMs - 5000 * kMs,
                            50.0 * static_cast<int>(random() % 3) - 50};
    const Aligned aligned = Align(job);
    for (const RankScore& score : aligned.ranks) {
      EXPECT_GE(score.coverage, 0.99);
      EXPECT_LE(score.error_max, 10'000);
      EXPECT_LE(score.eps_max, 20'000);
    }
    EXPECT_EQ(aligned.result.corridors_violated, 0u);
  }
}

// Minutes, with drift and wander: followed, and the error stays small.
TEST(AlignImported, DriftAndWanderOverMinutes) {
  for (const double exit_ns : {2'000.0, 40'000.0}) {
    GpuJob job(4);
    job.steps = 600;
    job.pause_ns = 200 * kMs;
    job.exit_ns = exit_ns;
    job.ranks[0].clock = {5, 20, 10'000, 300};
    job.ranks[1].clock = {-3000 * kMs, 50, 50'000, 300};
    job.ranks[2].clock = {777 * kMs, -50, 2'000, 12};
    job.ranks[3].clock = {0, 0, 50'000, 120};
    const Aligned aligned = Align(job);
    for (std::size_t r = 1; r < 4; ++r) {
      EXPECT_GE(aligned.ranks[r].coverage, 0.99) << r;
      EXPECT_LE(aligned.ranks[r].error_max, exit_ns < 10'000 ? 5'000 : 60'000) << r;
      EXPECT_LE(aligned.ranks[r].eps_p50, exit_ns < 10'000 ? 12'000 : 80'000) << r;
    }
  }
}

// Members that leave up to 500 us apart: the error grows and says so.
TEST(AlignImported, ExitsFarApart) {
  GpuJob job(4);
  job.steps = 100;
  job.exit_ns = 500'000;
  job.pattern = {{.transfer_ns = 3 * kMs}, {.bytes = 1 << 10, .transfer_ns = 3 * kMs}};
  job.ranks[2].clock = {100 * kMs, 30};
  const Aligned aligned = Align(job);
  for (std::size_t r = 1; r < 4; ++r) {
    EXPECT_GE(aligned.ranks[r].coverage, 0.99) << r;
    EXPECT_GE(aligned.ranks[r].eps_p50, 50'000) << r;
    EXPECT_LE(aligned.ranks[r].eps_p50, 1'000'000) << r;
  }
  EXPECT_GE(Count(aligned, Loss::kClockCorridor), 1u);
}

TEST(AlignImported, FewOperations) {
  for (int n = 1; n <= 3; ++n)
    for (int trial = 0; trial < 20; ++trial) {
      GpuJob job(4);
      job.seed = static_cast<std::uint64_t>(trial);
      job.steps = 1;
      job.pattern.assign(static_cast<std::size_t>(n), {});
      job.ranks[1].clock = {2000 * kMs, 50};
      const Aligned aligned = Align(job);
      for (const RankScore& score : aligned.ranks) {
        EXPECT_EQ(score.coverage, 1) << n;
        EXPECT_LE(score.error_max, 10'000) << n;
        EXPECT_LE(score.eps_max, 60'000) << n;
      }
    }
}

// A grid: ranks of a row and ranks of a column share communicators, nobody all of them.
TEST(AlignImported, SubGroupsConnectThroughOneAnother) {
  GpuJob rows(8), columns(8);
  rows.groups = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  columns.groups = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  for (std::size_t r = 0; r < 8; ++r) {
    const JobClock clock{static_cast<std::int64_t>(r) * 321 * kMs, 10.0 * static_cast<double>(r) - 40};
    rows.ranks[r].clock = columns.ranks[r].clock = clock;
    rows.ranks[r].group = 100 + r / 4;
    columns.ranks[r].group = 200 + r % 4;
  }
  rows.Run(), columns.Run();
  (void)merge::NumberCollectives(rows.files, 1), (void)merge::NumberCollectives(columns.files, 1);
  std::vector<merge::AlignRank> ranks = rows.Align();
  const std::vector<merge::AlignRank> more = columns.Align();
  for (std::size_t r = 0; r < 8; ++r) {
    ranks[r].collectives.insert(ranks[r].collectives.end(), more[r].collectives.begin(), more[r].collectives.end());
    ranks[r].end_ns = std::max(ranks[r].end_ns, more[r].end_ns);
  }
  std::vector<std::int64_t> offsets;
  for (const unsigned jobs : {1u, 3u}) {
    const auto result = merge::AlignClocks(ranks, merge::ClockChoice::kAuto, jobs);
    ASSERT_TRUE(result.ok());
    std::vector<std::int64_t> now;
    for (std::int32_t r = 0; r < 8; ++r) {
      const std::int64_t t = rows.begin_ns[0] + 100 * kMs;
      const auto [offset, eps] = Look(result.value().clock, r, rows.Local(static_cast<std::size_t>(r), t));
      const std::int64_t error = std::llabs(rows.Local(static_cast<std::size_t>(r), t) + offset - rows.Local(0, t));
      EXPECT_LE(error, eps) << r;
      EXPECT_LE(eps, r == 0 ? 0 : r <= 4 ? 15'000 : 30'000) << r;
      now.push_back(offset);
    }
    if (!offsets.empty()) {
      EXPECT_EQ(offsets, now);
    }
    offsets = now;
  }
}

// What nothing ties to the others keeps its times and has no bound; the larger part is the reference.
TEST(AlignImported, UnrelatedRanksAreNotRefused) {
  GpuJob job(5);
  job.groups = {{0, 1}, {2, 3, 4}};
  for (std::size_t r = 0; r < 5; ++r) {
    job.ranks[r].clock.offset_ns = static_cast<std::int64_t>(r) * 50 * kMs;
    job.ranks[r].group = r < 2 ? 1 : 2;
  }
  job.Run();
  (void)merge::NumberCollectives(job.files, 1);
  const auto result = merge::AlignClocks(job.Align(), merge::ClockChoice::kAuto, 1);
  ASSERT_TRUE(result.ok());
  const schema::Clock& clock = result.value().clock;
  std::set<std::int32_t> unbounded;
  for (std::size_t i = 0; i < clock.rows(); ++i)
    if (clock.base_error_ns[i] == INT64_MAX) unbounded.insert(clock.rank[i]);
  EXPECT_EQ(unbounded, (std::set<std::int32_t>{0, 1}));
  std::uint64_t told = 0;
  for (const merge::AlignLoss& loss : result.value().losses) told += loss.loss == Loss::kClockUnbounded;
  EXPECT_EQ(told, 2u);
  const auto at = [&](std::int32_t r) {
    return Look(clock, r, job.Local(static_cast<std::size_t>(r), job.begin_ns[0] + 50 * kMs));
  };
  EXPECT_EQ(at(2).first, 0);
  EXPECT_NEAR(static_cast<double>(at(4).first), -100e6, 20e3);
  // Between themselves they are aligned all the same.
  EXPECT_NEAR(static_cast<double>(at(1).first - at(0).first), -50e6, 20e3);
  // Told to, their wall clocks are believed.
  const auto wall = merge::AlignClocks(job.Align(), merge::ClockChoice::kWall, 1);
  ASSERT_TRUE(wall.ok());
  for (std::size_t i = 0; i < wall.value().clock.rows(); ++i) EXPECT_LT(wall.value().clock.base_error_ns[i], 20 * kMs);
}

// Ranks that left operations out, began later, were cut: the rest aligns as well.
TEST(AlignImported, PartialTraces) {
  GpuJob job(6);
  job.steps = 60;
  job.ranks[1].first_step = 1;
  job.ranks[2].skip_last = 40;
  job.ranks[3].dropped = {10, 11, 30, 31, 32, 33, 34, 90};
  job.ranks[4].first_step = 30;
  for (std::size_t r = 1; r < 6; ++r) job.ranks[r].clock = {static_cast<std::int64_t>(r) * -999 * kMs, 50};
  const Aligned aligned = Align(job);
  for (std::size_t r = 1; r < 6; ++r) {
    EXPECT_GE(aligned.ranks[r].coverage, 0.99) << r;
    EXPECT_LE(aligned.ranks[r].error_max, 10'000) << r;
    EXPECT_LE(aligned.ranks[r].eps_max, 20'000) << r;
  }
}

// Ends of uneven exchanges bound nothing, but they still end together.
TEST(AlignImported, UnevenExchangesAreNoCorridors) {
  std::vector<merge::AlignRank> ranks(2);
  for (int r = 0; r < 2; ++r) {
    ranks[static_cast<std::size_t>(r)].rank = r;
    ranks[static_cast<std::size_t>(r)].imported = true;
    for (std::uint64_t i = 0; i < 20; ++i) {
      const std::int64_t t = static_cast<std::int64_t>(i) * 10 * kMs + r * 5 * kMs;
      // Rank 1 exchanges nothing with rank 0 in the last one and has long left when that begins.
      const bool odd = i == 19;
      ranks[static_cast<std::size_t>(r)].collectives.push_back(
          {7, i, 0, 1, odd ? t + r * -4 * kMs : t, odd ? t + r * -4 * kMs + 50'000 : t + kMs, 1, true});
    }
    ranks[static_cast<std::size_t>(r)].begin_ns = 0;
    ranks[static_cast<std::size_t>(r)].end_ns = 210 * kMs;
  }
  const auto result = merge::AlignClocks(ranks, merge::ClockChoice::kAuto, 1);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value().corridors_checked, 0u);
  const auto [offset, eps] = Look(result.value().clock, 1, 100 * kMs);
  EXPECT_NEAR(static_cast<double>(offset), -5e6, 10e3);
  EXPECT_LE(eps, 30'000);
}

// An order of leaving that differs between kinds shows, and widens the error over it.
TEST(AlignImported, OrderOfLeavingThatDiffersBetweenKinds) {
  GpuJob job(2);
  job.steps = 100;
  job.Run();
  (void)merge::NumberCollectives(job.files, 1);
  std::vector<merge::AlignRank> ranks = job.Align();
  for (merge::AlignCollective& c : ranks[1].collectives)
    if (c.sort == 1 << 18) c.end_ns += 60'000;
  const auto result = merge::AlignClocks(ranks, merge::ClockChoice::kAuto, 1);
  ASSERT_TRUE(result.ok());
  const auto [offset, eps] = Look(result.value().clock, 1, job.begin_ns[1] + 100 * kMs);
  EXPECT_GE(eps, 50'000);
}

}  // namespace
}  // namespace lockstep::test
