// A GPU rank that is read around the replayed steps only, against all of it.

#include <gtest/gtest.h>

#include <tuple>

#include "analysis/replay/gpu/gpu_run.h"
#include "tests/unit/analysis/tables/gpu_events.h"

namespace lockstep::replay {
namespace {

constexpr std::int64_t kStepUs = 1'000;

// Steps of four kernels and a copy, launched `ahead` before; two streams, and a wait of the host in each step.
test::GpuEvents Rank(int steps, std::int64_t ahead_us) {
  test::GpuEvents rank;
  rank.us = 1'000;
  for (int i = 0; i < steps; ++i) {
    const std::int64_t at = (i + 100) * kStepUs;
    rank.Step(i, at * rank.us, (at + kStepUs) * rank.us);
    for (int k = 0; k < 4; ++k)
      rank.Launched(k % 2 == 0 ? "gemm" : "add", at + 200 * k, at + 200 * k + 150 - i % 7, at + 40 * k - ahead_us,
                    k == 3 ? 9 : 7);
    rank.Call("cudaStreamSynchronize", at + 900 - ahead_us / 2, at + 960 - ahead_us / 2);
    rank.Op(1, "aten::add", at - ahead_us + 10, at - ahead_us + 30);
  }
  return rank;
}

Result<GpuRun> Read(const test::GpuEvents& rank, int steps, std::uint64_t most_rows, std::size_t& reads) {
  const std::int64_t begin = 100 * kStepUs * rank.us, end = (100 + steps) * kStepUs * rank.us;
  merge::Timeline timeline = test::TimelineOf({&rank}, {{begin, end}});
  auto& t = timeline.tables;
  t.ranks.gpu.assign(1, 1);
  for (std::size_t i = 0; i < rank.tables.steps.rows(); ++i)
    t.steps.Append({.index = rank.tables.steps.index[i],
                    .begin_ns = rank.tables.steps.begin_ns[i],
                    .end_ns = rank.tables.steps.end_ns[i],
                    .step_ns = rank.tables.steps.end_ns[i] - rank.tables.steps.begin_ns[i],
                    .ranks = 1,
                    .complete = 1});
  ReadRunOptions options;
  options.most_steps = 10;
  options.most_rows = most_rows;
  options.read_rank = [&](std::int32_t) -> Result<schema::RankTables> {
    ++reads;
    return rank.tables;
  };
  return ReadGpuRun(timeline, options);
}

auto FieldsOf(const GpuItem& item) {
  return std::tuple(item.kind, item.watched, item.lane, item.thread, item.ref, item.after, item.call_ns, item.lag_ns,
                    item.begin_ns, item.end_ns, item.delay_ns);
}

TEST(ReadAround, ReplaysTheSame) {
  // Far ahead the calls of the first steps lie outside of what is read: then all of it is.
  for (const std::int64_t ahead_us : {100, 1'500, 30'000}) {
    constexpr int kSteps = 200;
    const test::GpuEvents rank = Rank(kSteps, ahead_us);
    std::size_t reads = 0;
    const Result<GpuRun> whole = Read(rank, kSteps, UINT64_MAX, reads), around = Read(rank, kSteps, 1, reads);
    ASSERT_TRUE(whole.ok());
    ASSERT_TRUE(around.ok());
    EXPECT_EQ(whole.value().steps, around.value().steps);
    ASSERT_EQ(around.value().steps.size(), 10u);
    const GpuRank &a = whole.value().gpu_ranks.at(0), &b = around.value().gpu_ranks.at(0);
    EXPECT_EQ(a.origin_ns, b.origin_ns);
    EXPECT_EQ(a.end_ns, b.end_ns);
    EXPECT_EQ(a.gates, b.gates);
    EXPECT_EQ(a.groups, b.groups);
    EXPECT_GE(a.items.size(), 40u);
    ASSERT_EQ(a.items.size(), b.items.size());
    for (std::size_t i = 0; i < a.items.size(); ++i)
      EXPECT_TRUE(FieldsOf(a.items[i]) == FieldsOf(b.items[i])) << i << " of " << a.items.size();
    EXPECT_EQ(a.residuals.unlaunched, 0u);
    EXPECT_EQ(b.residuals.unlaunched, 0u);
  }
}

}  // namespace
}  // namespace lockstep::replay
