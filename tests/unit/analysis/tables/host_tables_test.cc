// ops, ranges, memory, groups: exact values on ranks written by hand.

#include <gtest/gtest.h>

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

TEST(OpsTable, SelfAndTotalOnHostAndGpu) {
  HandMade rank;
  rank.Op(0, "linear", 0, 100, 41);
  rank.Op(0, "addmm", 20, 70, 41);
  rank.Op(0, "copy_", 25, 35);
  rank.Kernel("gemm", 200, 300, 0, 50);
  rank.Kernel("bias", 300, 310, 0, 80);
  rank.Copy(1, 310, 317, 64, 0, 30);
  rank.Kernel("lonely", 400, 405, 0, 150);
  rank.Kernel("stray", 500, 509);
  // Autograd's thread.
  rank.Op(1, "autograd::engine::evaluate_function: AddmmBackward0", 600, 700, 41);
  rank.Op(1, "AddmmBackward0", 610, 690, 41);
  rank.Op(1, "mm", 620, 680);
  rank.Kernel("gemm_t", 800, 850, 1, 650);
  const merge::Timeline timeline = TimelineOf({&rank}, {{200, 850}});
  const Table table = Make("ops", timeline, {&rank});
  const auto get = [&](std::string_view op, std::string_view column) {
    return At(table, FindRow(table, "op", S(op)), column);
  };
  EXPECT_EQ(get("linear", "calls"), I(1));
  EXPECT_EQ(get("linear", "cpu_self_ns"), I(50));
  EXPECT_EQ(get("linear", "cpu_total_ns"), I(100));
  EXPECT_EQ(get("linear", "gpu_self_ns"), I(10));
  EXPECT_EQ(get("linear", "gpu_total_ns"), I(117));
  EXPECT_EQ(get("linear", "kernels"), I(2));
  EXPECT_EQ(get("linear", "kernels_self"), I(1));
  EXPECT_EQ(get("addmm", "cpu_self_ns"), I(40));
  EXPECT_EQ(get("addmm", "gpu_self_ns"), I(100));
  EXPECT_EQ(get("addmm", "gpu_total_ns"), I(107));
  EXPECT_EQ(get("copy_", "gpu_self_ns"), I(7));
  EXPECT_EQ(get("copy_", "kernels"), I(0));
  // addmm made the backward node; linear called it.
  EXPECT_EQ(get("addmm", "backward_gpu_ns"), I(50));
  EXPECT_EQ(get("addmm", "backward_cpu_ns"), I(100));
  EXPECT_EQ(get("linear", "backward_gpu_ns"), I(50));
  EXPECT_EQ(get("copy_", "backward_gpu_ns"), I(0));
  EXPECT_EQ(get("mm", "gpu_self_ns"), I(50));
  EXPECT_EQ(get("(outside operators)", "gpu_self_ns"), I(5));
  EXPECT_EQ(get("(outside operators)", "calls"), Cell());
  EXPECT_EQ(get("(launch not in the trace)", "gpu_self_ns"), I(9));
  std::int64_t gpu = 0;
  for (const auto& row : table.rows) gpu += IntOf(row[5]);
  EXPECT_EQ(table.columns[5].name, "gpu_self_ns");
  EXPECT_EQ(gpu, 100 + 10 + 7 + 5 + 9 + 50);
}

TEST(OpsTable, ACallWithinOneOfItsNameCountsOnce) {
  HandMade rank;
  rank.Op(0, "checkpoint", 0, 100);
  rank.Op(0, "checkpoint", 10, 60);
  rank.Kernel("k", 200, 230, 0, 20);
  const merge::Timeline timeline = TimelineOf({&rank}, {{0, 300}});
  const Table table = Make("ops", timeline, {&rank});
  EXPECT_EQ(At(table, 0, "calls"), I(2));
  EXPECT_EQ(At(table, 0, "cpu_self_ns"), I(100));
  EXPECT_EQ(At(table, 0, "cpu_total_ns"), I(100));
  EXPECT_EQ(At(table, 0, "gpu_total_ns"), I(30));
}

TEST(RangesTable, LaunchesOfAutogradsThreadBelongToTheRangeAround) {
  HandMade rank;
  rank.Range(2, 0, "ProfilerStep#7", 0, 1000);
  rank.Range(2, 0, "forward", 0, 100);
  rank.Range(2, 0, "backward", 100, 900);
  rank.Range(1, 1, "nccl:all_reduce", 300, 400);
  rank.Op(0, "aten::mm", 10, 20);
  rank.Kernel("f", 110, 150, 0, 15);
  rank.Kernel("b", 210, 300, 1, 200);
  const std::uint32_t nccl = rank.Kernel("ncclDevKernel_AllReduce", 290, 500, 1, 350);
  rank.Kernel("f2", 480, 490, 0, 950);
  rank.Collective(rank.Comm("world", 2, 1, 9), CollectiveKind::kAllReduce, 290, 500, 64, nccl);
  const merge::Timeline timeline = TimelineOf({&rank}, {{110, 500}});
  const Table table = Make("ranges", timeline, {&rank});
  const auto get = [&](std::string_view range, std::string_view column) {
    return At(table, FindRow(table, "range", S(range)), column);
  };
  ASSERT_EQ(table.rows.size(), 4u);
  EXPECT_EQ(get("ProfilerStep#N", "gpu_ns"), I(40 + 90 + 210 + 10));
  EXPECT_EQ(get("ProfilerStep#N", "gpu_self_ns"), I(10));
  EXPECT_EQ(get("ProfilerStep#N", "kernels"), I(4));
  EXPECT_EQ(get("forward", "gpu_ns"), I(40));
  EXPECT_EQ(get("backward", "gpu_ns"), I(300));
  EXPECT_EQ(get("backward", "gpu_self_ns"), I(90));
  EXPECT_EQ(get("backward", "total_ns"), I(800));
  EXPECT_EQ(get("nccl:all_reduce", "source"), S("nvtx"));
  EXPECT_EQ(get("nccl:all_reduce", "gpu_self_ns"), I(210));
  // 290-300 under b, 480-490 under f2.
  EXPECT_EQ(get("nccl:all_reduce", "exposed_comm_ns"), I(190));
  EXPECT_EQ(get("backward", "exposed_comm_ns"), I(190));
  EXPECT_EQ(get("forward", "exposed_comm_ns"), I(0));
}

TEST(RangesTable, WithoutAGpuHostTimeAndCommunicationRemain) {
  HandMade rank;
  rank.Range(0, 0, "exchange", 100, 400);
  rank.Range(0, 0, "exchange", 500, 600);
  rank.Collective(rank.Comm("", 4, 1, 9), CollectiveKind::kAllReduce, 150, 350, 64);
  rank.MpiCall(150, 350);
  const merge::Timeline timeline = TimelineOf({&rank}, {{0, 1000}});
  const Table table = Make("ranges", timeline, {&rank});
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(At(table, 0, "count"), I(2));
  EXPECT_EQ(At(table, 0, "total_ns"), I(400));
  EXPECT_EQ(At(table, 0, "mean_ns"), I(200));
  EXPECT_EQ(At(table, 0, "gpu_ns"), Cell());
  EXPECT_EQ(At(table, 0, "exposed_comm_ns"), I(200));
}

TEST(RangesTable, HowLongMostOfThemTake) {
  HandMade rank;
  for (int i = 0; i < 101; ++i) rank.Range(0, 0, "request", 1000 * i, 1000 * i + (i * 37) % 101 + 1);
  const merge::Timeline timeline = TimelineOf({&rank}, {{0, 200'000}});
  const Table table = Make("ranges", timeline, {&rank});
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(At(table, 0, "p50_ns"), I(51));
  EXPECT_EQ(At(table, 0, "p90_ns"), I(91));
  EXPECT_EQ(At(table, 0, "p99_ns"), I(100));
  EXPECT_EQ(At(table, 0, "max_ns"), I(101));
}

TEST(MemoryTable, PeakUnusedAndGrowth) {
  HandMade rank;
  rank.tables.devices.Append({.device = 0, .name = schema::kNone, .memory_bytes = 10'000});
  for (std::int64_t step = 0; step < 8; ++step) {
    const std::int64_t at = 1000 * step;
    const auto level = static_cast<std::uint64_t>(1000 + 50 * step);
    rank.Step(step, at, at + 1000);
    rank.Memory(at + 10, 1, 0, 500, level + 500, 3000);
    rank.Memory(at + 20, 1, 0, 200, level + 700, 3000);
    rank.Memory(at + 30, 2, 0, 700, level, 3000);
    rank.Memory(at + 40, 1, 0, 50, level + 50, 3000);  // Never freed.
  }
  const merge::Timeline timeline = TimelineOf({&rank}, {{0, 8000}});
  const Table table = Make("memory", timeline, {&rank});
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(At(table, 0, "memory"), S("gpu"));
  EXPECT_EQ(At(table, 0, "peak_allocated_bytes"), I(2050));
  EXPECT_EQ(At(table, 0, "peak_step"), I(7));
  EXPECT_EQ(At(table, 0, "peak_reserved_bytes"), I(3000));
  EXPECT_EQ(At(table, 0, "unused_at_peak_bytes"), I(950));
  EXPECT_EQ(At(table, 0, "capacity_share"), Cell(0.3));
  EXPECT_EQ(At(table, 0, "growth_bytes_per_step"), Cell(50.0));
  EXPECT_EQ(At(table, 0, "grows"), S("yes"));
  EXPECT_EQ(At(table, 0, "largest_allocation_bytes"), I(500));
  EXPECT_EQ(At(table, 0, "allocations"), I(24));
}

TEST(MemoryTable, MoreThanTheDeviceHasIsNoShareOfIt) {
  HandMade rank;
  rank.tables.devices.Append({.device = 0, .name = schema::kNone, .memory_bytes = 2'000});
  rank.Memory(10, 1, 0, 500, 1500, 3000);
  const merge::Timeline timeline = TimelineOf({&rank}, {{0, 100}});
  const Table table = Make("memory", timeline, {&rank});
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(At(table, 0, "capacity_bytes"), I(2000));
  EXPECT_EQ(At(table, 0, "capacity_share"), Cell());
  EXPECT_EQ(table.notes.size(), 1u);
}

TEST(MemoryTable, SamplesThatOnlyMoveDoNotGrow) {
  HandMade rank;
  for (std::int64_t step = 0; step < 12; ++step) {
    rank.Step(step, 1000 * step, 1000 * step + 1000);
    rank.Memory(1000 * step + 5, 3, 65535, 0, static_cast<std::uint64_t>(step % 3 * 100 + 1000), 0);
  }
  const merge::Timeline timeline = TimelineOf({&rank}, {{0, 12'000}});
  const Table table = Make("memory", timeline, {&rank});
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(At(table, 0, "memory"), S("host"));
  EXPECT_EQ(At(table, 0, "device"), Cell());
  EXPECT_EQ(At(table, 0, "peak_allocated_bytes"), I(1200));
  EXPECT_EQ(At(table, 0, "peak_reserved_bytes"), Cell());
  EXPECT_EQ(At(table, 0, "grows"), S("no"));
  EXPECT_EQ(At(table, 0, "samples"), I(12));
}

TEST(MemoryTable, FewStepsAreNoTrend) {
  HandMade rank;
  for (std::int64_t step = 0; step < 4; ++step) {
    rank.Step(step, 1000 * step, 1000 * step + 1000);
    rank.Memory(1000 * step + 5, 3, 0, 0, static_cast<std::uint64_t>(step * 100 + 1000), 5000);
  }
  const merge::Timeline timeline = TimelineOf({&rank}, {{0, 4000}});
  EXPECT_EQ(At(Make("memory", timeline, {&rank}), 0, "grows"), Cell());
}

// dp: 100-200 (waits to 150) and 400-500; tp: 180-260; compute 120-140 and 420-520.
struct GroupsCase {
  HandMade rank;
  merge::Timeline timeline;
  GroupsCase() {
    const std::uint32_t dp = rank.Comm("mesh_dp (3)", 8, 4, 77), tp = rank.Comm("undefined (5)", 4, 1, 78);
    rank.Collective(dp, CollectiveKind::kAllReduce, 100, 200, 4000, rank.Kernel("ncclDevKernel_1", 100, 200));
    rank.Collective(tp, CollectiveKind::kAllGather, 180, 260, 800, rank.Kernel("ncclDevKernel_2", 180, 260));
    rank.Collective(dp, CollectiveKind::kAllReduce, 400, 500, 4000, rank.Kernel("ncclDevKernel_1", 400, 500));
    rank.Kernel("gemm", 120, 140);
    rank.Kernel("gemm", 420, 520);
    timeline = TimelineOf({&rank}, {{100, 520}});
    auto& t = timeline.tables;
    // Waits 50 then transfers 50; the all-gather is not split; the last one only transfers.
    const std::int64_t begins[] = {100, 180, 400}, ends[] = {200, 260, 500}, waits[] = {50, -1, 0};
    for (std::uint32_t i = 0; i < 3; ++i) {
      t.collectives.Append({.bytes = rank.tables.collectives.bytes[i],
                            .transfer_ns = std::int64_t{waits[i] < 0 ? -1
                                                        : i == 0     ? 50
                                                                     : 100}});
      t.collective_ranks.Append({.collective = i,
                                 .rank = 0,
                                 .row = i,
                                 .arrival_ns = begins[i],
                                 .end_low_ns = ends[i],
                                 .end_high_ns = ends[i],
                                 .wait_ns = waits[i],
                                 .transfer_ns = waits[i] < 0 ? -1 : ends[i] - begins[i] - waits[i]});
    }
    timeline = merge::MakeTimeline("", std::move(timeline.tables));
  }
};

TEST(GroupsTable, ExposedInstantsCountOnce) {
  const GroupsCase job;
  const Table table = Make("groups", job.timeline, {&job.rank});
  const auto get = [&](std::string_view group, std::string_view column) {
    return At(table, FindRow(table, "group", S(group)), column);
  };
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_EQ(get("mesh_dp", "count"), I(2));
  EXPECT_EQ(get("mesh_dp", "bytes"), I(8000));
  EXPECT_EQ(get("mesh_dp", "total_ns"), I(200));
  EXPECT_EQ(get("mesh_dp", "hidden_ns"), I(20 + 80));
  // 100-120, 140-150 wait; 150-180 and 400-420 transfer; 180-200 is shared.
  EXPECT_EQ(get("mesh_dp", "exposed_wait_ns"), I(30));
  EXPECT_EQ(get("mesh_dp", "exposed_transfer_ns"), I(50));
  EXPECT_EQ(get("mesh_dp", "exposed_ns"), I(80));
  EXPECT_EQ(get("mesh_dp", "shared_ns"), I(20));
  EXPECT_EQ(get("adjacent ranks", "kind"), S("all-gather"));
  EXPECT_EQ(get("adjacent ranks", "exposed_unsplit_ns"), I(60));
  EXPECT_EQ(get("adjacent ranks", "shared_ns"), I(20));
  EXPECT_EQ(get("(several at once)", "exposed_transfer_ns"), I(20));
  EXPECT_EQ(get("adjacent ranks", "busbw_bytes_per_s"), Cell());
}

// Of fewer than five instances there is none.
TEST(GroupsTable, BandwidthOfFiveInstances) {
  for (const std::uint32_t n : {4u, 5u}) {
    HandMade rank;
    const std::uint32_t dp = rank.Comm("mesh_dp (3)", 8, 4, 77);
    for (std::uint32_t i = 0; i < n; ++i)
      rank.Collective(dp, CollectiveKind::kAllReduce, 100 * i, 100 * i + 50, 4000,
                      rank.Kernel("ncclDevKernel_1", 100 * i, 100 * i + 50));
    merge::Timeline timeline = TimelineOf({&rank}, {{0, 1000}});
    for (std::uint32_t i = 0; i < n; ++i) {
      timeline.tables.collectives.Append({.bytes = 4000, .transfer_ns = 40});
      timeline.tables.collective_ranks.Append({.collective = i,
                                               .rank = 0,
                                               .row = i,
                                               .arrival_ns = 100 * i,
                                               .end_low_ns = 100 * i + 50,
                                               .end_high_ns = 100 * i + 50,
                                               .wait_ns = 10,
                                               .transfer_ns = 40});
    }
    timeline = merge::MakeTimeline("", std::move(timeline.tables));
    for (const char* name : {"groups", "collectives"}) {
      const Table table = Make(name, timeline, {&rank});
      ASSERT_EQ(table.rows.size(), 1u) << name;
      if (n < 5) {
        EXPECT_EQ(At(table, 0, "algbw_bytes_per_s"), Cell()) << name;
        EXPECT_EQ(At(table, 0, "busbw_bytes_per_s"), Cell()) << name;
        continue;
      }
      EXPECT_DOUBLE_EQ(RealOf(At(table, 0, "algbw_bytes_per_s")), 1e9 * 4000 / 40) << name;
      EXPECT_DOUBLE_EQ(RealOf(At(table, 0, "busbw_bytes_per_s")), 1e9 * 4000 / 40 * 2 * 7 / 8) << name;
    }
  }
}

// Of the ranks together: what one of them waits on average, and the one that waits longest.
TEST(CollectivesTable, WhoWaitsLongest) {
  HandMade ranks[2];
  for (HandMade& rank : ranks) {
    const std::uint32_t world = rank.Comm("MPI_COMM_WORLD", 2, 1, 9);
    for (std::int64_t i = 0; i < 2; ++i) rank.Collective(world, CollectiveKind::kAllReduce, 100 * i, 100 * i + 90, 64);
  }
  merge::Timeline timeline = TimelineOf({&ranks[0], &ranks[1]}, {{0, 1000}, {0, 1000}});
  for (std::uint32_t i = 0; i < 2; ++i) {
    timeline.tables.collectives.Append({.bytes = 64, .transfer_ns = 40});
    for (std::int32_t r = 0; r < 2; ++r)
      timeline.tables.collective_ranks.Append({.collective = i,
                                               .rank = r,
                                               .row = i,
                                               .arrival_ns = 100 * i,
                                               .end_low_ns = 100 * i + 90,
                                               .end_high_ns = 100 * i + 90,
                                               .wait_ns = 10 + 20 * r,
                                               .transfer_ns = 80 - 20 * r});
  }
  timeline = merge::MakeTimeline("", std::move(timeline.tables));
  const Table table = Make("collectives", timeline, {&ranks[0], &ranks[1]});
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(At(table, 0, "wait_mean_ns"), I(20));
  EXPECT_EQ(At(table, 0, "longest_wait_mean_ns"), I(30));
  EXPECT_EQ(At(table, 0, "longest_wait_rank"), I(1));
}

TEST(GroupsTable, WithoutAGpuTheTrainingThreadInMpiIsExposed) {
  HandMade rank;
  const std::uint32_t world = rank.Comm("MPI_COMM_WORLD", 4, 1, 9);
  rank.Collective(world, CollectiveKind::kAllReduce, 100, 300, 64);
  rank.MpiCall(100, 300);
  // Posted at 400, completed in a Wait from 600 to 700: moves only there.
  const std::uint32_t row = rank.Collective(world, CollectiveKind::kAllReduce, 400, 700, 64);
  rank.tables.collectives.mode[row] = 1;
  rank.MpiCall(400, 410);
  rank.MpiCall(600, 700);
  const merge::Timeline timeline = TimelineOf({&rank}, {{0, 1000}});
  const Table table = Make("groups", timeline, {&rank});
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(At(table, 0, "group"), S("MPI_COMM_WORLD"));
  EXPECT_EQ(At(table, 0, "exposed_unsplit_ns"), I(200 + 10 + 100));
  EXPECT_EQ(At(table, 0, "hidden_ns"), I(0));
  EXPECT_EQ(At(table, 0, "total_ns"), I(310));
}

TEST(WaitsTable, SumsToTheWaiting) {
  HandMade ranks[3];
  for (HandMade& rank : ranks) {
    const std::uint32_t world = rank.Comm("MPI_COMM_WORLD", 3, 1, 9);
    for (const std::int64_t begin : {100, 500}) rank.Collective(world, CollectiveKind::kAllReduce, begin, 900, 64);
  }
  merge::Timeline timeline = TimelineOf({&ranks[0], &ranks[1], &ranks[2]}, {{0, 1000}, {0, 1000}, {0, 1000}});
  const std::int64_t arrivals[][3] = {{100, 201, 302}, {500, 500, 511}};
  for (std::uint32_t i = 0; i < 2; ++i) {
    timeline.tables.collectives.Append({.expected = 3, .seen = 3});
    for (std::int32_t r = 0; r < 3; ++r)
      timeline.tables.collective_ranks.Append({.collective = i,
                                               .rank = r,
                                               .row = i,
                                               .arrival_ns = arrivals[i][r],
                                               .end_high_ns = 900,
                                               .wait_ns = arrivals[i][2] - arrivals[i][r]});
  }
  timeline = merge::MakeTimeline("", std::move(timeline.tables));
  TableOptions options;
  options.every_rank = true;
  const Table table = Make("waits", timeline, {&ranks[0], &ranks[1], &ranks[2]}, options);
  const auto wait = [&](const Cell& rank, std::string_view awaited) {
    return At(table, FindRow(table, "awaited", S(awaited), rank), "wait_ns");
  };
  // Of 101 ns for both, half each; what does not divide goes to one of them.
  EXPECT_EQ(IntOf(wait(I(0), "rank 1")) + IntOf(wait(I(0), "rank 2")), 202 + 11);
  EXPECT_EQ(IntOf(wait(I(0), "rank 1")) / 2, 25);
  EXPECT_EQ(wait(I(1), "rank 2"), I(101 + 11));
  EXPECT_EQ(wait(S("all"), "rank 2"), I(IntOf(wait(I(0), "rank 2")) + 112));
  EXPECT_EQ(FindRow(table, "rank", I(2)), -1);
}

}  // namespace
}  // namespace lockstep::tables
