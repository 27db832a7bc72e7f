// idle, launches, launch-bound, queue, copies, syncs: exact values on ranks written by hand.

#include <gtest/gtest.h>

#include "analysis/gpu/device_gaps.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/describe.h"
#include "gpu_events.h"

namespace lockstep::tables {
namespace {

using test::At;
using test::FindRow;
using test::GpuEvents;
using test::HandMade;
using test::Make;
using test::TimelineOf;

Cell S(std::string_view text) { return std::string(text); }
Cell I(std::int64_t value) { return value; }

Table TableOf(const GpuEvents& rank, std::string_view name, Interval window, const TableOptions& options = {}) {
  const merge::Timeline timeline = TimelineOf({&rank}, {window});
  return Make(name, timeline, {&rank}, options);
}

std::int64_t RowWhere(const Table& table, std::initializer_list<std::pair<std::string_view, Cell>> cells) {
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    bool all = true;
    for (const auto& [column, value] : cells) all &= At(table, static_cast<std::int64_t>(row), column) == value;
    if (all) return static_cast<std::int64_t>(row);
  }
  return -1;
}

TEST(Describe, AsPandasDoes) {
  std::vector<std::int64_t> values = {7, 1, 3, 10};
  const Description d = Describe(values);
  EXPECT_EQ(d.count, 4);
  EXPECT_EQ(d.total, 21);
  EXPECT_DOUBLE_EQ(d.mean, 5.25);
  EXPECT_NEAR(d.std, 4.031128874149275, 1e-12);
  EXPECT_DOUBLE_EQ(d.p25, 2.5);
  EXPECT_DOUBLE_EQ(d.p50, 5);
  EXPECT_DOUBLE_EQ(d.p75, 7.75);
  EXPECT_EQ(d.min, 1);
  EXPECT_EQ(d.max, 10);
  std::vector<std::int64_t> one = {4}, none;
  EXPECT_DOUBLE_EQ(Describe(one).p75, 4);
  EXPECT_EQ(Describe(none).count, 0);
}

TEST(HostCalls, ByName) {
  for (const auto& [name, call] : std::initializer_list<std::pair<const char*, gpu::HostCall>>{
           {"cudaLaunchKernel", gpu::HostCall::kLaunch},
           {"cudaLaunchKernelExC_v11060", gpu::HostCall::kLaunch},
           {"cuLaunchKernelEx", gpu::HostCall::kLaunch},
           {"hipExtModuleLaunchKernel", gpu::HostCall::kLaunch},
           {"cudaGraphLaunch_v10000", gpu::HostCall::kGraphLaunch},
           {"hipGraphLaunch", gpu::HostCall::kGraphLaunch},
           {"cudaGraphAddKernelNode", gpu::HostCall::kOther},
           {"cudaMemcpyAsync_ptsz_v7000", gpu::HostCall::kCopy},
           {"cudaMemcpy", gpu::HostCall::kBlockingCopy},
           {"cuMemcpyDtoH_v2", gpu::HostCall::kBlockingCopy},
           {"cudaMemset", gpu::HostCall::kCopy},
           {"hipMemcpyWithStream", gpu::HostCall::kBlockingCopy},
           {"cudaStreamSynchronize", gpu::HostCall::kSync},
           {"hipDeviceSynchronize", gpu::HostCall::kSync},
           {"cuCtxSynchronize", gpu::HostCall::kSync},
           {"cudaEventSynchronize", gpu::HostCall::kSync},
           {"cudaFree", gpu::HostCall::kSync},
           {"cudaFreeAsync", gpu::HostCall::kMemory},
           {"cudaMalloc", gpu::HostCall::kMemory},
           {"cudaStreamWaitEvent", gpu::HostCall::kEvent},
           {"cudaEventQuery", gpu::HostCall::kEvent},
           {"cudaFuncGetAttributes", gpu::HostCall::kOther}})
    EXPECT_EQ(gpu::ClassifyHostCall(name, 0), call) << name;
  EXPECT_EQ(gpu::ClassifyHostCall("launch", 1), gpu::HostCall::kLaunch) << "of an unknown runtime: its kind";
}

TEST(Launches, CorrelationsNeedNoOrder) {
  for (const std::uint64_t spread : {1u, 1u << 28}) {
    GpuEvents rank;
    rank.Call("cudaEventQuery", 1, 2, 5 * spread);  // The same number as a launch: the launch counts.
    rank.Call("cudaLaunchKernel", 10, 12, 5 * spread);
    rank.Call("cudaLaunchKernel", 20, 22, 3 * spread);
    rank.KernelAt("b", 30, 40, 3 * spread);
    rank.KernelAt("a", 13, 20, 5 * spread);
    rank.KernelAt("unknown", 50, 60, 4 * spread);
    rank.KernelAt("none", 70, 80, 0);
    const gpu::LaunchIndex index = gpu::FindLaunches(rank.tables);
    EXPECT_EQ(index.of_kernel, (std::vector<std::uint32_t>{2, 1, schema::kNone, schema::kNone}));
  }
}

TEST(RangeNest, InnermostOpenRange) {
  GpuEvents rank;
  const auto outer = rank.Range(2, 0, "outer", 0, 100);
  const auto first = rank.Op(0, "first", 10, 20);
  const auto inner = rank.Op(0, "inner", 12, 18);
  const auto second = rank.Op(0, "second", 30, 60);
  const auto beyond = rank.Range(1, 0, "outlives", 50, 120);  // Ends after what is around it.
  const auto other = rank.Op(1, "other thread", 5, 50);
  const gpu::RangeNest nest(rank.tables);
  EXPECT_EQ(nest.At(0, 12), inner);
  EXPECT_EQ(nest.At(0, 18), first);
  EXPECT_EQ(nest.At(0, 20), outer);
  EXPECT_EQ(nest.At(0, 55), beyond);
  EXPECT_EQ(nest.At(0, 110), beyond);
  EXPECT_EQ(nest.At(0, 120), schema::kNone);
  EXPECT_EQ(nest.At(0, -1), schema::kNone);
  EXPECT_EQ(nest.At(1, 30), other);
  EXPECT_EQ(nest.At(9, 30), schema::kNone);
  EXPECT_EQ(nest.Parent(inner), first);
  EXPECT_EQ(nest.Parent(beyond), second);
  const std::vector<std::uint32_t> threads = {0, 1, 0, 0, 7};
  const std::vector<std::int64_t> times = {55, 30, 12, 130, 1};
  EXPECT_EQ(nest.At(threads, times), (std::vector<std::uint32_t>{beyond, other, inner, schema::kNone, schema::kNone}));
  const gpu::RangeNest ops(rank.tables, gpu::RangeNest::kCpuOps);
  EXPECT_EQ(ops.At(0, 70), schema::kNone);
  EXPECT_EQ(ops.At(0, 55), second);
}

// us, on stream 7 unless said:        cause of the gap before it
//   a      10-20                      edge_of_trace (10)
//   b      30-40  launched at 15      launch_latency (10)
//   c     100-110 launched at 95      host (60)
//   sync   85-111                     the host waits for c, in aten::item
//   d     150-160 launched at 148     sync (40)
//   input 161-190
//   e     200-210 launched at 195     input (40)
//   mpi   211-240
//   f     250-260 launched at 245     collective (40)
//   g     280-290 no launch           launch_unknown (20)
//   h     285-300 on stream 9: no gap
GpuEvents Gaps() {
  GpuEvents rank;
  rank.us = 1000;
  rank.Range(2, 0, "forward", 0, 147);
  rank.Op(0, "aten::mm", 42, 94);
  rank.Op(0, "aten::item", 96, 112);
  rank.Launched("a", 10, 20, 5);
  rank.Launched("b", 30, 40, 15);
  rank.Launched("c", 100, 110, 95);
  rank.Call("cudaStreamSynchronize", 98, 111);
  rank.Launched("d", 150, 160, 148);
  rank.tables.ranges.category[rank.Range(2, 0, "enumerate(DataLoader)", 161, 190)] = 1;
  rank.Launched("e", 200, 210, 195);
  rank.MpiCall(211'000, 240'000);
  rank.Launched("f", 250, 260, 245);
  rank.KernelAt("g", 280, 290, 0);
  rank.Launched("h", 285, 300, 284, 9);
  return rank;
}

TEST(IdleTable, EachCauseAndTheirSum) {
  const GpuEvents rank = Gaps();
  const Table table = TableOf(rank, "idle", {0, 320'000});
  const auto total = [&](std::string_view cause) { return At(table, FindRow(table, "cause", S(cause)), "total_ns"); };
  EXPECT_EQ(total("between"), I(76'000));
  EXPECT_EQ(total("operator"), I(53'000));
  EXPECT_EQ(total("launch"), I(4'000));
  EXPECT_EQ(total("start"), I(26'000));
  EXPECT_EQ(total("sync"), I(3'000));
  EXPECT_EQ(total("input"), I(29'000));
  EXPECT_EQ(total("communication"), I(29'000));
  EXPECT_EQ(total("launch_unknown"), I(20'000));
  EXPECT_EQ(total("all"), I(240'000));
  EXPECT_EQ(At(table, 0, "cause"), S("all"));
  EXPECT_EQ(At(table, 0, "count"), I(8));
  EXPECT_EQ(At(table, 0, "largest_ns"), I(60'000));
  EXPECT_DOUBLE_EQ(RealOf(At(table, 0, "share_of_window")), 0.75);
  EXPECT_DOUBLE_EQ(RealOf(At(table, FindRow(table, "cause", S("operator")), "share_of_idle")), 53.0 / 240);
  EXPECT_EQ(At(table, 0, "device"), Cell());
}

TEST(IdleTable, ClippedToTheWindow) {
  const GpuEvents rank = Gaps();
  const Table table = TableOf(rank, "idle", {50'000, 155'000});
  EXPECT_EQ(At(table, FindRow(table, "cause", S("operator")), "total_ns"), I(45'000));
  EXPECT_EQ(At(table, FindRow(table, "cause", S("sync")), "total_ns"), I(3'000));
  EXPECT_EQ(At(table, FindRow(table, "cause", S("all")), "total_ns"), I(90'000));
}

TEST(IdleTable, DevicesOfTheirOwn) {
  GpuEvents rank;
  rank.Launched("a", 10, 20, 5);
  rank.Launched("b", 50, 60, 5);
  rank.tables.kernels.device[1] = 3;
  const Table table = TableOf(rank, "idle", {0, 100});
  EXPECT_EQ(At(table, RowWhere(table, {{"device", I(0)}, {"cause", S("all")}}), "total_ns"), I(90));
  EXPECT_EQ(At(table, RowWhere(table, {{"device", I(3)}, {"cause", S("all")}}), "total_ns"), I(90));
}

TEST(IdleTable, OfRanksTogether) {
  const GpuEvents rank = Gaps();
  const merge::Timeline timeline = TimelineOf({&rank, &rank}, {{0, 320'000}, {0, 320'000}});
  const Table table = Make("idle", timeline, {&rank, &rank});
  EXPECT_EQ(At(table, 0, "rank"), S("all"));
  EXPECT_EQ(At(table, 0, "total_ns"), I(480'000));
  EXPECT_DOUBLE_EQ(RealOf(At(table, 0, "share_of_window")), 0.75);
}

// Ranks that lack a cause have their idle time all the same: one denominator for all rows.
TEST(IdleTable, SharesAreOfAllRanks) {
  const GpuEvents a = Gaps();
  GpuEvents b;
  b.us = 1000;
  b.Launched("only", 100, 220, 99);
  const merge::Timeline timeline = TimelineOf({&a, &b}, {{0, 320'000}, {0, 320'000}});
  const Table table = Make("idle", timeline, {&a, &b});
  double shares = 0;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    EXPECT_EQ(At(table, static_cast<std::int64_t>(row), "idle_ns"), I(440'000));
    EXPECT_EQ(At(table, static_cast<std::int64_t>(row), "window_ns"), I(640'000));
    if (At(table, static_cast<std::int64_t>(row), "cause") != S("all"))
      shares += RealOf(At(table, static_cast<std::int64_t>(row), "share_of_idle"));
  }
  EXPECT_NEAR(shares, 1, 1e-12);
}

// A wait is to blame for its return and for the launch that came late, not for what the host did in between.
TEST(IdleTable, NothingAfterAWaitIsTheWaits) {
  GpuEvents rank;
  rank.us = 1000;
  rank.Launched("a", 10, 100, 5);
  rank.Call("cudaStreamSynchronize", 20, 103);
  rank.Op(0, "aten::sort", 103, 500);
  rank.Launched("b", 510, 520, 505);
  const Table table = TableOf(rank, "idle", {10'000, 520'000});
  EXPECT_EQ(At(table, FindRow(table, "cause", S("sync")), "total_ns"), I(3'000 + 1'000 + 4'000));
  EXPECT_EQ(At(table, FindRow(table, "cause", S("operator")), "total_ns"), I(397'000));
  EXPECT_EQ(At(table, FindRow(table, "cause", S("between")), "total_ns"), I(5'000));
}

TEST(IdleTable, WhatIsLaunchedAndDoesNotStartHasNoReasonInTheTrace) {
  GpuEvents rank;
  rank.us = 1000;
  rank.Launched("a", 10, 20, 5);
  rank.Launched("b", 220, 230, 6);
  const Table table = TableOf(rank, "idle", {10'000, 230'000});
  EXPECT_EQ(At(table, FindRow(table, "cause", S("start")), "total_ns"), I(30'000));
  EXPECT_EQ(At(table, FindRow(table, "cause", S("not_started")), "total_ns"), I(170'000));
}

TEST(IdleTable, InputThatNobodyMarksStandsBeforeTheForwardPass) {
  GpuEvents rank;
  rank.us = 1000;
  rank.Step(1, 0, 1'000'000);
  rank.Step(2, 1'000'000, 2'000'000);
  for (const std::int64_t at : {0, 1'000}) {
    rank.Op(0, "aten::stack", at + 100, at + 300);
    rank.Op(0, "aten::conv2d", at + 500, at + 510);
    rank.Launched("conv", at + 505, at + 900, at + 502);
    rank.tables.ranges.category[rank.Range(2, 0, "Optimizer.step#SGD.step", at + 920, at + 950)] = 4;
    rank.Launched("adam", at + 940, at + 945, at + 930);
  }
  const Table table = TableOf(rank, "idle", {0, 2'000'000});
  // Twice from the step's begin, the first time after a window's edge, and what follows the optimizer's step.
  EXPECT_EQ(At(table, FindRow(table, "cause", S("before_forward")), "total_ns"), I(1'000'000 + 50'000 - 50'000));
}

TEST(IdleTable, SyncPseudoKernelsAreNoWork) {
  GpuEvents rank;
  rank.Launched("a", 10, 20, 5);
  rank.Launched("Stream Sync", 20, 90, 6);
  rank.tables.kernels.work[1] = 2;
  EXPECT_EQ(At(TableOf(rank, "idle", {0, 100}), 0, "total_ns"), I(90));
}

TEST(IdleGapsTable, SaysWhatWasAround) {
  const GpuEvents rank = Gaps();
  const Table table = TableOf(rank, "idle-gaps", {0, 320'000});
  ASSERT_EQ(table.rows.size(), 8u);
  EXPECT_EQ(At(table, 0, "cause"), S("operator"));
  EXPECT_EQ(At(table, 0, "of_it_ns"), I(52'000));
  EXPECT_EQ(At(table, 0, "operator_ns"), I(52'000));
  EXPECT_EQ(At(table, 0, "between_ns"), I(3'000));
  EXPECT_EQ(At(table, 0, "gap_ns"), I(60'000));
  EXPECT_EQ(At(table, 0, "at_ns"), I(40'000));
  EXPECT_EQ(At(table, 0, "host"), S("aten::mm"));
  EXPECT_EQ(At(table, 0, "call"), Cell());
  EXPECT_EQ(At(table, 0, "before"), S("b"));
  EXPECT_EQ(At(table, 0, "after"), S("c"));
  EXPECT_EQ(At(table, 1, "cause"), S("between"));
  EXPECT_EQ(At(table, 1, "host"), S("forward"));
  EXPECT_EQ(At(table, 1, "sync_ns"), I(3'000));
  EXPECT_EQ(At(table, FindRow(table, "cause", S("input")), "host"), S("enumerate(DataLoader)"));
  TableOptions two;
  two.top = 2;
  const Table cut = TableOf(rank, "idle-gaps", {0, 320'000}, two);
  EXPECT_EQ(cut.rows.size(), 2u);
  ASSERT_FALSE(cut.notes.empty());
  EXPECT_EQ(cut.notes[0], "6 rows more: --top 0 shows all");
}

TEST(IdleTable, WithoutGpuSaysSo) {
  const HandMade rank;
  const merge::Timeline timeline = TimelineOf({&rank}, {{0, 100}});
  for (const char* name : {"idle", "idle-gaps", "launches", "launch-bound", "queue", "copies", "copy-list", "syncs",
                           "critical-path", "critical-ops"}) {
    const Table table = Make(name, timeline, {&rank});
    EXPECT_TRUE(table.rows.empty()) << name;
    ASSERT_EQ(table.notes.size(), 1u) << name;
    EXPECT_NE(table.notes[0].find("no GPU events"), std::string::npos) << name;
  }
}

TEST(LaunchesTable, DelaysAndOutliers) {
  GpuEvents rank;
  rank.Launch("cudaLaunchKernel", 0, 4'000, "k", 10'000, 12'000);            // Delay 6 us.
  rank.Launch("cudaLaunchKernel", 20'000, 80'000, "k", 60'000, 90'000);      // Starts within the call: 0.
  rank.Launch("cuLaunchKernel", 100'000, 101'000, "t", 301'000, 302'000);    // 200 us.
  rank.Launch("cudaLaunchKernel", 400'000, 401'000, "k", 399'000, 400'000);  // Before its call.
  rank.KernelAt("graph a", 510'000, 515'000, rank.Call("cudaGraphLaunch", 500'000, 502'000));
  rank.KernelAt("graph b", 520'000, 540'000, rank.tables.api.correlation.back());
  rank.KernelAt("lost", 600'000, 610'000, 0);
  const Table table = TableOf(rank, "launches", {0, 1'000'000}, {.top = 0});
  const auto row = [&](const char* by, const char* name, const char* metric) {
    return RowWhere(table, {{"by", S(by)}, {"name", S(name)}, {"metric", S(metric)}});
  };
  const std::int64_t delay = row("all", "", "launch_delay");
  EXPECT_EQ(At(table, delay, "count"), I(4));  // 6, 0, 200 us and the graph's 8.
  EXPECT_EQ(At(table, delay, "total_ns"), I(214'000));
  EXPECT_EQ(At(table, delay, "max_ns"), I(200'000));
  EXPECT_EQ(At(table, delay, "above_100us"), I(1));
  EXPECT_EQ(At(table, delay, "before_call"), I(1));
  EXPECT_DOUBLE_EQ(RealOf(At(table, delay, "p50_ns")), 7'000);
  const std::int64_t cpu = row("all", "", "cpu_duration");
  EXPECT_EQ(At(table, cpu, "count"), I(5));
  EXPECT_EQ(At(table, cpu, "above_50us"), I(1));
  const std::int64_t gpu = row("all", "", "gpu_duration");
  EXPECT_EQ(At(table, gpu, "count"), I(5));
  EXPECT_EQ(At(table, gpu, "max_ns"), I(30'000));
  EXPECT_EQ(At(table, gpu, "below_10us"), I(3));
  // HTA knows neither cuLaunchKernel nor graphs, and counts what begins too early as 0.
  const std::int64_t hta = row("hta", "", "launch_delay");
  EXPECT_EQ(At(table, hta, "count"), I(3));
  EXPECT_EQ(At(table, hta, "total_ns"), I(6'000));
  EXPECT_EQ(At(table, row("call", "cudaGraphLaunch", "gpu_duration"), "total_ns"), I(25'000));
  EXPECT_EQ(At(table, row("kernel", "graph b", "gpu_duration"), "total_ns"), I(20'000));
  EXPECT_EQ(row("kernel", "graph b", "launch_delay"), -1);
  ASSERT_EQ(table.notes.size(), 2u);
  EXPECT_NE(table.notes[0].find("1 GPU operation without launching call"), std::string::npos);
  EXPECT_NE(table.notes[1].find("1 operation starts on the GPU before"), std::string::npos);
}

TEST(LaunchesTable, RanksTogetherHaveTheDeviationOfAll) {
  GpuEvents a, b;
  for (const std::int64_t cpu : {1, 5}) a.Launch("cudaLaunchKernel", 100 * cpu, 100 * cpu + cpu, "k", 600, 700);
  for (const std::int64_t cpu : {2, 3, 9}) b.Launch("cudaLaunchKernel", 100 * cpu, 100 * cpu + cpu, "k", 950, 960);
  const merge::Timeline timeline = TimelineOf({&a, &b}, {{0, 1'000}, {0, 1'000}});
  const Table table = Make("launches", timeline, {&a, &b});
  const std::int64_t cpu = RowWhere(table, {{"by", S("all")}, {"metric", S("cpu_duration")}});
  std::vector<std::int64_t> all = {1, 5, 2, 3, 9};
  const Description d = Describe(all);
  EXPECT_DOUBLE_EQ(RealOf(At(table, cpu, "mean_ns")), d.mean);
  EXPECT_NEAR(RealOf(At(table, cpu, "std_ns")), d.std, 1e-12);
  EXPECT_EQ(At(table, cpu, "p50_ns"), Cell());
}

TEST(LaunchBoundTable, EachStep) {
  GpuEvents rank;
  rank.us = 1000;
  // Step 4: busy 90 of 100. Step 5: idle 70 of 100, all by late launches.
  rank.Launched("long", 0, 90, -10);
  rank.Launched("short", 100, 105, 95);
  rank.Launched("late", 150, 175, 148);
  rank.Launched("next", 200, 210, 150);
  rank.Step(4, 0, 100'000);
  rank.Step(5, 100'000, 200'000);
  const Table table = TableOf(rank, "launch-bound", {0, 200'000});
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(At(table, 0, "bound"), S("compute"));
  EXPECT_EQ(At(table, 0, "idle_ns"), I(10'000));
  EXPECT_EQ(At(table, 0, "launches"), I(1));
  EXPECT_EQ(At(table, 1, "step"), I(5));
  EXPECT_EQ(At(table, 1, "bound"), S("launch"));
  EXPECT_EQ(At(table, 1, "idle_ns"), I(70'000));
  EXPECT_EQ(At(table, 1, "launch_limited_ns"), I(70'000));
  EXPECT_EQ(At(table, 1, "launches"), I(2));
  EXPECT_EQ(At(table, 1, "launch_cpu_ns"), I(2'000));
  EXPECT_EQ(At(table, 1, "kernels"), I(2));
  EXPECT_EQ(At(table, 1, "short_kernels"), I(1));
  EXPECT_DOUBLE_EQ(RealOf(At(table, 1, "launch_limited_share")), 1);
}

TEST(LaunchBoundTable, WhateverIsNoComputeIsNotCommunication) {
  GpuEvents rank;
  rank.us = 1000;
  // Copies for 85 of 100, of which 20 beside 10 of communication and 15 of compute.
  rank.Launched("k", 0, 15, -10);
  rank.Launched("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 20, 30, 15, 9);
  rank.CopyAt(1, 10, 95, 20'000'000, rank.Call("cudaMemcpyAsync", 5, 6), 8, 2);
  rank.Step(0, 0, 100'000);
  const Table table = TableOf(rank, "launch-bound", {0, 100'000});
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(At(table, 0, "bound"), S("copies"));
  EXPECT_EQ(At(table, 0, "compute_ns"), I(15'000));
  EXPECT_EQ(At(table, 0, "communication_ns"), I(10'000));
  EXPECT_EQ(At(table, 0, "copy_ns"), I(85'000));
}

TEST(QueueTable, WeighedWithTimeAndAsHtaDoes) {
  GpuEvents rank;
  // Length 0 until 10, 1 until 20, 2 until 40, 1 until 50, 0 until 100.
  rank.Launched("a", 40, 45, 10);
  rank.Launched("b", 50, 60, 20);
  const Table table = TableOf(rank, "queue", {0, 100});
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(At(table, 0, "stream"), I(7));
  EXPECT_EQ(At(table, 0, "operations"), I(2));
  EXPECT_DOUBLE_EQ(RealOf(At(table, 0, "mean_length")), 0.6);
  EXPECT_EQ(At(table, 0, "max_length"), I(2));
  EXPECT_EQ(At(table, 0, "p95_length"), I(2));
  EXPECT_DOUBLE_EQ(RealOf(At(table, 0, "empty_share")), 0.6);
  EXPECT_DOUBLE_EQ(RealOf(At(table, 0, "below_2_share")), 0.8);
  EXPECT_DOUBLE_EQ(RealOf(At(table, 0, "blocked_share")), 0);
  EXPECT_EQ(At(table, 0, "point_count"), I(4));  // 1, 2, 1, 0.
  EXPECT_DOUBLE_EQ(RealOf(At(table, 0, "point_mean")), 1);
  EXPECT_DOUBLE_EQ(RealOf(At(table, 0, "point_p75")), 1.25);
}

TEST(QueueTable, FullQueueBlocks) {
  GpuEvents rank;
  for (std::int64_t i = 0; i < 1'024; ++i) rank.Launched("k", 3'000 + i, 3'001 + i, i);
  const Table table = TableOf(rank, "queue", {0, 4'024});
  EXPECT_EQ(At(table, 0, "max_length"), I(1'024));
  EXPECT_EQ(At(table, 0, "blocked_ns"), I(3'000 - 1'023));
}

TEST(CopiesTable, RatesAddUpAndBlockingCounts) {
  GpuEvents rank;
  rank.us = 1000;
  // 1 MB in 100 us is 10 GB/s; two side by side for 50 us.
  rank.CopyAt(1, 0, 100, 1'000'000, rank.Call("cudaMemcpyAsync", 0, 1), 1, 2);
  rank.CopyAt(1, 50, 150, 1'000'000, rank.Call("cudaMemcpyAsync", 1, 2), 2, 2);
  rank.CopyAt(2, 200, 210, 4, rank.Call("cudaMemcpyAsync", 150, 212), 7, 1);
  rank.CopyAt(6, 300, 300, 64, rank.Call("cudaMemsetAsync", 299, 300), 7, 0);
  const Table table = TableOf(rank, "copies", {0, 400'000});
  const std::int64_t up = FindRow(table, "kind", S("copy host to device"));
  EXPECT_EQ(At(table, up, "host_memory"), S("pinned"));
  EXPECT_EQ(At(table, up, "count"), I(2));
  EXPECT_EQ(At(table, up, "total_ns"), I(200'000));
  EXPECT_EQ(At(table, up, "active_ns"), I(150'000));
  EXPECT_DOUBLE_EQ(RealOf(At(table, up, "bytes_per_s")), 1e10);
  EXPECT_DOUBLE_EQ(RealOf(At(table, up, "active_bytes_per_s")), 2e15 / 150'000);
  EXPECT_DOUBLE_EQ(RealOf(At(table, up, "p50_bytes_per_s")), 1e10);
  EXPECT_DOUBLE_EQ(RealOf(At(table, up, "max_bytes_per_s")), 2e10);
  EXPECT_EQ(At(table, up, "blocking_count"), I(0));
  EXPECT_EQ(At(table, up, "hint"), Cell());
  const std::int64_t down = FindRow(table, "kind", S("copy device to host"));
  EXPECT_EQ(At(table, down, "blocking_count"), I(1));
  EXPECT_EQ(At(table, down, "blocking_ns"), I(62'000));
  EXPECT_EQ(At(table, down, "hint"), S("pageable blocking"));
  const std::int64_t set = FindRow(table, "kind", S("memset"));
  EXPECT_EQ(At(table, set, "untimed_count"), I(1));
  EXPECT_EQ(At(table, set, "bytes_per_s"), Cell());

  const Table list = TableOf(rank, "copy-list", {0, 400'000});
  ASSERT_EQ(list.rows.size(), 4u);
  EXPECT_EQ(At(list, 2, "blocking"), S("yes"));
  EXPECT_EQ(At(list, 2, "call"), S("cudaMemcpyAsync"));
}

// ROCm's traces do not say how much copies on the device and memsets move.
TEST(CopiesTable, OfUnknownBytesThereIsNoRate) {
  GpuEvents rank;
  rank.us = 1000;
  for (std::uint32_t i = 0; i < 200; ++i)
    rank.CopyAt(8, 10 * i, 10 * i + 5, 0, rank.Call("hipMemcpyAsync", 10 * i, 10 * i + 1), 1, 0);
  const Table table = TableOf(rank, "copies", {0, 2'000'000});
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(At(table, 0, "count"), I(200));
  EXPECT_EQ(At(table, 0, "total_ns"), I(1'000'000));
  for (const char* name : {"bytes", "bytes_per_s", "active_bytes_per_s", "p50_bytes_per_s", "max_bytes_per_s", "hint"})
    EXPECT_EQ(At(table, 0, name), Cell()) << name;
  const Table list = TableOf(rank, "copy-list", {0, 2'000'000});
  EXPECT_EQ(At(list, 0, "bytes"), Cell());
  EXPECT_EQ(At(list, 0, "bytes_per_s"), Cell());
}

TEST(SyncsTable, SayWhereAndWhatTheyCost) {
  const GpuEvents rank = Gaps();
  const Table table = TableOf(rank, "syncs", {0, 320'000});
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(At(table, 0, "call"), S("cudaStreamSynchronize"));
  EXPECT_EQ(At(table, 0, "op"), S("aten::item"));
  EXPECT_EQ(At(table, 0, "range"), S("forward"));
  EXPECT_EQ(At(table, 0, "count"), I(1));
  EXPECT_EQ(At(table, 0, "total_ns"), I(13'000));
  EXPECT_EQ(At(table, 0, "idle_after_ns"), I(3'000));
  EXPECT_EQ(At(table, 0, "idle_gaps"), I(1));
  EXPECT_EQ(At(table, 0, "gpu_wait_ns"), Cell());
}

TEST(SyncsTable, RecordsWithoutTheirCall) {
  GpuEvents rank;
  rank.Launched("a", 10, 20, 5);
  rank.tables.sync.Append({.begin_ns = 12, .duration_ns = 9, .kind = 3, .stream = 7, .correlation = 99});
  rank.tables.sync.Append({.begin_ns = 12, .duration_ns = 1, .kind = 2, .stream = 7, .correlation = 98});
  rank.Launched("b", 40, 50, 38);
  const Table table = TableOf(rank, "syncs", {0, 60});
  ASSERT_EQ(table.rows.size(), 1u) << "a stream that waits for an event blocks nobody";
  EXPECT_EQ(At(table, 0, "call"), S("stream sync"));
  EXPECT_EQ(At(table, 0, "gpu_wait_ns"), I(9));
}

}  // namespace
}  // namespace lockstep::tables
