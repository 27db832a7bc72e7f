// kernels, breakdown, sequences: exact values on ranks written by hand.

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/tables/engine/cells.h"
#include "hand_made.h"

namespace lockstep::tables {
namespace {

using test::At;
using test::FindRow;
using test::HandMade;
using test::Make;
using test::TimelineOf;

Cell S(std::string_view text) { return std::string(text); }
Cell I(std::int64_t value) { return value; }

// Durations 4, 6, 20 us of "gemm" (the last beside a copy), 40 us of NCCL over 25 us of it.
HandMade Sample() {
  HandMade rank;
  rank.tables.devices.Append({.device = 0, .name = schema::kNone, .sm_count = 100});
  const std::uint32_t small = rank.Shape(64, 128, 50), large = rank.Shape(400, 256, 80);
  rank.tables.kernels.shape[rank.Kernel("gemm", 0, 4'000)] = small;
  rank.tables.kernels.shape[rank.Kernel("gemm", 10'000, 16'000)] = small;
  rank.tables.kernels.shape[rank.Kernel("gemm", 20'000, 40'000)] = large;
  rank.Copy(1, 30'000, 45'000, 100, 0, -1, 9);
  rank.Kernel("ncclDevKernel_AllReduce", 35'000, 75'000, 0, -1, 20);
  return rank;
}

TEST(KernelsTable, ExactSums) {
  const HandMade rank = Sample();
  const merge::Timeline timeline = TimelineOf({&rank}, {{0, 100'000}});
  const Table table = Make("kernels", timeline, {&rank});
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(At(table, 0, "kernel"), S("ncclDevKernel_AllReduce"));
  EXPECT_EQ(At(table, 0, "class"), S("communication"));
  EXPECT_EQ(At(table, 0, "std_ns"), Cell());
  const std::int64_t gemm = FindRow(table, "kernel", S("gemm"));
  EXPECT_EQ(At(table, gemm, "class"), S("compute"));
  EXPECT_EQ(At(table, gemm, "count"), I(3));
  EXPECT_EQ(At(table, gemm, "total_ns"), I(30'000));
  EXPECT_EQ(At(table, gemm, "mean_ns"), I(10'000));
  EXPECT_EQ(At(table, gemm, "min_ns"), I(4'000));
  EXPECT_EQ(At(table, gemm, "max_ns"), I(20'000));
  EXPECT_EQ(At(table, gemm, "p50_ns"), I(6'000));
  EXPECT_DOUBLE_EQ(RealOf(At(table, gemm, "std_ns")), std::sqrt((36e6 + 16e6 + 100e6) / 2));
  EXPECT_EQ(At(table, gemm, "short_count"), I(2));
  EXPECT_DOUBLE_EQ(RealOf(At(table, gemm, "share_of_busy")), 30'000.0 / (4'000 + 6'000 + 55'000));
  EXPECT_DOUBLE_EQ(RealOf(At(table, gemm, "share_of_kernels")), 30.0 / 70);
  // 10 us at 50 %, 20 us at 80 %.
  EXPECT_DOUBLE_EQ(RealOf(At(table, gemm, "occupancy")), 0.7);
  EXPECT_EQ(At(table, gemm, "small_grid_count"), I(2));
  EXPECT_EQ(At(table, gemm, "shape"), S("400x1x1 blocks of 256x1x1"));
  EXPECT_EQ(At(table, gemm, "streams"), S("7"));
  EXPECT_EQ(At(table, 0, "occupancy"), Cell());
  EXPECT_EQ(At(table, 0, "small_grid_count"), Cell());
}

TEST(KernelsTable, PooledIsWhatAllDurationsTogetherGive) {
  HandMade a = Sample(), b;
  b.Kernel("gemm", 0, 50'000);
  b.Kernel("gemm", 60'000, 61'000);
  const merge::Timeline timeline = TimelineOf({&a, &b}, {{0, 100'000}, {0, 100'000}});
  const Table table = Make("kernels", timeline, {&a, &b});
  const std::int64_t gemm = FindRow(table, "kernel", S("gemm"));
  EXPECT_EQ(At(table, gemm, "rank"), S("all"));
  EXPECT_EQ(At(table, gemm, "count"), I(5));
  EXPECT_EQ(At(table, gemm, "total_ns"), I(81'000));
  EXPECT_EQ(At(table, gemm, "mean_ns"), I(16'200));
  EXPECT_EQ(At(table, gemm, "min_ns"), I(1'000));
  EXPECT_EQ(At(table, gemm, "max_ns"), I(50'000));
  double squares = 0;
  for (const double ns : {4e3, 6e3, 20e3, 50e3, 1e3}) squares += (ns - 16200) * (ns - 16200);
  EXPECT_NEAR(RealOf(At(table, gemm, "std_ns")), std::sqrt(squares / 4), 1e-6);
  EXPECT_DOUBLE_EQ(RealOf(At(table, gemm, "occupancy")), 0.7);
  EXPECT_EQ(At(table, gemm, "worst_rank"), I(1));
  EXPECT_EQ(At(table, gemm, "worst_rank_total_ns"), I(51'000));
  EXPECT_DOUBLE_EQ(RealOf(At(table, gemm, "share_of_busy")), 81'000.0 / (65'000 + 51'000));
}

// Sends and receives of a pipeline run side by side under one name, and are no more than all of the busy time.
TEST(KernelsTable, ShareOfBusyCountsAnInstantOnce) {
  HandMade rank;
  rank.Kernel("gemm", 0, 10'000);
  for (const std::uint32_t stream : {30u, 31u, 32u})
    rank.Kernel("ncclDevKernel_SendRecv", 5'000, 35'000 + stream, 0, -1, stream);
  rank.Kernel("late", 90'000, 130'000);  // Ends after the window.
  const merge::Timeline timeline = TimelineOf({&rank}, {{0, 100'000}});
  const Table table = Make("kernels", timeline, {&rank});
  const std::int64_t messages = FindRow(table, "kernel", S("ncclDevKernel_SendRecv"));
  EXPECT_EQ(At(table, messages, "total_ns"), I(90'093));
  EXPECT_EQ(At(table, messages, "running_ns"), I(30'032));
  EXPECT_DOUBLE_EQ(RealOf(At(table, messages, "share_of_busy")), 30'032.0 / 45'032);
  const std::int64_t late = FindRow(table, "kernel", S("late"));
  EXPECT_EQ(At(table, late, "total_ns"), I(40'000));
  EXPECT_DOUBLE_EQ(RealOf(At(table, late, "share_of_busy")), 10'000.0 / 45'032);
}

TEST(KernelsTable, SyncPseudoKernelsTakeNoShare) {
  HandMade rank;
  rank.Kernel("k", 0, 10);
  rank.tables.kernels.work[rank.Kernel("Stream Wait Event", 10, 100)] = 2;
  const merge::Timeline timeline = TimelineOf({&rank}, {{0, 100}});
  const Table table = Make("kernels", timeline, {&rank});
  EXPECT_EQ(At(table, FindRow(table, "class", S("sync")), "share_of_kernels"), Cell());
  EXPECT_EQ(At(table, FindRow(table, "kernel", S("k")), "share_of_busy"), Cell(1.0));
}

TEST(KernelsTable, FilterKeepsSharesOfTheWhole) {
  const HandMade rank = Sample();
  const merge::Timeline timeline = TimelineOf({&rank}, {{0, 100'000}});
  TableOptions options;
  options.filter = "gemm";
  const Table table = Make("kernels", timeline, {&rank}, options);
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_DOUBLE_EQ(RealOf(At(table, 0, "share_of_kernels")), 30.0 / 70);
}

TEST(BreakdownTable, EveryInstantOnce) {
  const HandMade rank = Sample();
  const merge::Timeline timeline = TimelineOf({&rank}, {{0, 100'000}});
  const Table table = Make("breakdown", timeline, {&rank});
  const auto time = [&](std::string_view activity) {
    return IntOf(At(table, FindRow(table, "activity", S(activity)), "time_ns"));
  };
  EXPECT_EQ(time("compute"), 4'000 + 6'000 + 10'000);
  EXPECT_EQ(time("compute + memory"), 5'000);
  EXPECT_EQ(time("compute + communication + memory"), 5'000);
  EXPECT_EQ(time("communication + memory"), 5'000);
  EXPECT_EQ(time("communication"), 30'000);
  EXPECT_EQ(table.rows.size(), 5u);
  EXPECT_DOUBLE_EQ(RealOf(At(table, FindRow(table, "activity", S("compute")), "share_of_busy")), 20.0 / 65);
  EXPECT_DOUBLE_EQ(RealOf(At(table, FindRow(table, "activity", S("compute")), "share_of_window")), 0.2);
}

TEST(BreakdownTable, CutToTheWindow) {
  const HandMade rank = Sample();
  merge::Timeline timeline = TimelineOf({&rank}, {{12'000, 37'000}});
  test::Meta(timeline, "window", "steps");
  const Table table = Make("breakdown", timeline, {&rank});
  const auto time = [&](std::string_view activity) {
    return IntOf(At(table, FindRow(table, "activity", S(activity)), "time_ns"));
  };
  EXPECT_EQ(time("compute"), 4'000 + 10'000);
  EXPECT_EQ(time("compute + memory"), 5'000);
  EXPECT_EQ(time("compute + communication + memory"), 2'000);
}

// Two steps of layer(linear(k1 k2) relu(k3)), once with a copy between; launches of the
// inner operators belong to the outermost that passes the filter.
HandMade Layers() {
  HandMade rank;
  for (std::int64_t step = 0; step < 3; ++step) {
    const std::int64_t at = step * 1000;
    rank.Op(0, "layer", at, at + 100);
    rank.Op(0, "linear", at + 10, at + 40);
    rank.Op(0, "relu", at + 50, at + 80);
    rank.Kernel("k2", at + 220, at + 260, 0, at + 20);
    rank.Kernel("k1", at + 200, at + 210, 0, at + 15);
    if (step == 2) rank.Copy(3, at + 262, at + 264, 8, 0, at + 45);
    rank.Kernel("k3", at + 270, at + 275, 0, at + 60);
  }
  return rank;
}

TEST(SequencesTable, OutermostOperatorsThatPass) {
  const HandMade rank = Layers();
  const merge::Timeline timeline = TimelineOf({&rank}, {{0, 100'000}});
  TableOptions options;
  Table table = Make("sequences", timeline, {&rank}, options);
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(At(table, 0, "sequence"), S("k1 -> k2 -> k3"));
  EXPECT_EQ(At(table, 0, "count"), I(2));
  EXPECT_EQ(At(table, 0, "length"), I(3));
  EXPECT_EQ(At(table, 0, "total_ns"), I(110));
  EXPECT_EQ(At(table, 0, "mean_ns"), I(55));
  EXPECT_EQ(At(table, 0, "mean_kernel_ns"), I(18));
  EXPECT_EQ(At(table, 0, "op"), S("layer"));
  EXPECT_EQ(At(table, 1, "sequence"), S("k1 -> k2 -> Memcpy DtoD -> k3"));

  options.filter = "linear";
  EXPECT_TRUE(Make("sequences", timeline, {&rank}, options).rows.empty());
  options.min_length = 2;
  table = Make("sequences", timeline, {&rank}, options);
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(At(table, 0, "sequence"), S("k1 -> k2"));
  EXPECT_EQ(At(table, 0, "count"), I(3));
}

}  // namespace
}  // namespace lockstep::tables
