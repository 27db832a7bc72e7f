// NCCL's graphs, calls without plugin, communicators and what is not found.

#include <set>
#include <tuple>

#include "nccl_fixture.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
using schema::kNoTime;

// Captured on the main thread: `group`'s operation and its kernel's launch; NCCL tells of it then (no proxies) or not.
struct Captured {
  std::uint64_t group, at;
  CollectiveKind kind;
  std::uint64_t count;
  bool announced = true, told = true;
};

class DecodeNcclGraphTest : public DecodeNcclTest {
 protected:
  void Capture(const Captured& c) {
    nccl_.Add(Begin{.event = NcclEvent::kGroupApi, .id = c.group, .ticks = c.at, .captured = true});
    nccl_.Add(Begin{.event = NcclEvent::kCollectiveApi,
                    .id = c.group + 1,
                    .ticks = c.at + 1,
                    .parent = c.group,
                    .kind = c.kind,
                    .count = c.count,
                    .captured = true});
    if (c.announced) {
      nccl_.Add(Begin{.event = NcclEvent::kKernelLaunch, .id = c.group + 2, .ticks = c.at + 2, .parent = c.group});
      nccl_.End(NcclEvent::kKernelLaunch, c.group + 2, c.at + 4);
    }
    gpu_.Add(Api{.name = "cuLaunchKernelEx",
                 .begin = c.at + 3,
                 .end = c.at + 4,
                 .correlation = static_cast<std::uint32_t>(10'000 + c.group)});
    if (c.told) Told(nccl_, c, c.at + 5);
    nccl_.End(NcclEvent::kGroupApi, c.group, c.at + 6);
  }
  void Told(NcclThread& thread, const Captured& c, std::uint64_t at) {
    thread.Add(Begin{.event = NcclEvent::kCollective,
                     .id = ++told_,
                     .ticks = at,
                     .parent = c.group + 1,
                     .kind = c.kind,
                     .count = c.count,
                     .seq = 4,
                     .algorithm = "RING"});
  }
  // One call that launches a graph of these kernels.
  void Replay(std::uint64_t at, std::uint32_t correlation, std::uint64_t first_node,
              std::initializer_list<std::string_view> kernels, std::uint64_t begin) {
    gpu_.Add(Api{.name = "cudaGraphLaunch", .begin = at, .end = at + 1, .correlation = correlation, .kind = 4});
    for (const std::string_view name : kernels) {
      gpu_.Add(Kernel{
          .name = name, .begin = begin, .end = begin + 50, .correlation = correlation, .graph_node = first_node++});
      begin += 100;
    }
  }
  std::uint64_t told_ = 90'000;
};

constexpr std::string_view kBroadcastKernel = "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)";

// Nothing ran when it was captured. NCCL tells of what was captured once, or of every replay: the rows are the kernels.
TEST_F(DecodeNcclGraphTest, RunsOfCapturedOperationsAreTheirKernels) {
  for (const bool proxies : {false, true}) {
    nccl_ = NcclThread();
    gpu_ = GpuThread();
    nccl_.Add(Comm{.id = 0xabc, .ticks = 5, .size = 4, .rank = 2});
    const Captured sum{100, 100, CollectiveKind::kAllReduce, 10, true, !proxies};
    const Captured cast{200, 120, CollectiveKind::kBroadcast, 20, false, false};  // NCCL 2.29.2 and later.
    const Captured more{300, 140, CollectiveKind::kAllReduce, 30, true, !proxies};
    for (const Captured& c : {sum, cast, more}) Capture(c);
    // The program's own node comes first, and node ids need not be the order on the GPU.
    Replay(500, 60, 7, {"gemm", kAllReduceKernel, kBroadcastKernel, kAllReduceKernel}, 1000);
    Replay(600, 61, 7, {"gemm", kAllReduceKernel, kBroadcastKernel, kAllReduceKernel}, 2000);
    SpoolBuilder spool = GpuProcess(gpu_, &nccl_);
    NcclThread callback;
    if (proxies)
      for (std::uint64_t i = 0; i < 2; ++i)
        for (const Captured& c : {sum, more}) Told(callback, c, 990 + 1000 * i);
    spool.Thread(3, 333).Records(callback.records, 3);
    const schema::RankTables t = Tables(spool);
    ASSERT_EQ(t.collectives.rows(), 6u);
    EXPECT_EQ(t.collectives.count, (std::vector<std::uint64_t>{10, 20, 30, 10, 20, 30}));
    EXPECT_EQ(t.collectives.begin_ns, (std::vector<std::int64_t>{1100, 1200, 1300, 2100, 2200, 2300}));
    EXPECT_EQ(t.collectives.end_ns[5], 2350);
    EXPECT_EQ(t.collectives.start, (std::vector<std::uint32_t>{1, 1, 1, 2, 2, 2}));
    EXPECT_EQ(t.collectives.enqueue_begin_ns, (std::vector<std::int64_t>{500, 500, 500, 600, 600, 600}));
    std::set<std::tuple<int, std::uint64_t, std::uint32_t>> keys;
    for (std::size_t i = 0; i < 6; ++i)
      keys.emplace(t.collectives.kind[i], t.collectives.seq[i], t.collectives.start[i]);
    EXPECT_EQ(keys.size(), 6u) << "a key each";
    EXPECT_EQ(TextOf(t, t.collectives.algorithm[0]), "RING");
    for (const char* loss : {"NcclUntied", "NcclKernelUntied", "NcclEventOrphan"})
      EXPECT_EQ(LossCount(t, loss), 0u) << loss;
  }
}

TEST_F(DecodeNcclGraphTest, AGraphThatCouldBeAnotherHasNoOperations) {
  const std::string_view kernel = kAllReduceKernel;
  // Three captures alike, of which two ran.
  for (std::uint64_t i = 0; i < 3; ++i) Capture({100 + 100 * i, 100 + 20 * i, CollectiveKind::kAllReduce, 10 + i});
  Replay(500, 60, 7, {kernel}, 1000);
  Replay(600, 61, 27, {kernel}, 2000);
  {
    const schema::RankTables t = Run();
    EXPECT_EQ(t.collectives.rows(), 0u);
    EXPECT_EQ(LossCount(t, "NcclKernelUntied"), 2u);
    EXPECT_EQ(t.kernels.work, (std::vector<std::uint8_t>{1, 1})) << "communication by name";
  }
  // With the third there is one way.
  Replay(700, 62, 17, {kernel}, 3000);
  const schema::RankTables t = Run();
  ASSERT_EQ(t.collectives.rows(), 3u);
  EXPECT_EQ(t.collectives.count, (std::vector<std::uint64_t>{10, 12, 11})) << "in the order of the nodes' ids";
}

TEST_F(DecodeNcclGraphTest, AGraphThatDoesNotFitIsLeftOutAlone) {
  Capture({100, 100, CollectiveKind::kAllReduce, 10});
  Capture({200, 120, CollectiveKind::kBroadcast, 20});
  // Captured by code that NCCL was not told of.
  Replay(500, 60, 7, {"ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"}, 1000);
  Replay(600, 61, 27, {kAllReduceKernel, kBroadcastKernel}, 2000);
  const schema::RankTables t = Run();
  ASSERT_EQ(t.collectives.rows(), 2u);
  EXPECT_EQ(LossCount(t, "NcclKernelUntied"), 1u);
}

// Without kernels, what a proxy tells of replays is counted.
TEST_F(DecodeNcclGraphTest, ReplaysWithoutKernelsAreCounted) {
  const Captured sum{100, 100, CollectiveKind::kAllReduce, 10, true, false};
  Capture(sum);
  NcclThread callback;
  for (std::uint64_t i = 0; i < 3; ++i) Told(callback, sum, 500 + i);
  SpoolBuilder spool = GpuProcess(gpu_, &nccl_);
  spool.Thread(3, 333).Records(callback.records, 3);
  const schema::RankTables t = Tables(spool);
  EXPECT_EQ(t.collectives.rows(), 0u);
  EXPECT_EQ(LossCount(t, "NcclUntied"), 3u);
}

// One-sided operations and device communicators make no rows, and that is said.
TEST_F(DecodeNcclTest, WhatMakesNoRowIsCounted) {
  nccl_.Add(Call{.name = "ncclPutSignal", .begin = 10, .end = 11, .count = 5});
  nccl_.Add(Call{.name = "ncclSignal", .begin = 12, .end = 13});
  nccl_.Add(Call{.name = "ncclWaitSignal", .begin = 14, .end = 15});
  nccl_.Add(Call{.name = "ncclCommRevoke", .begin = 16, .end = 17});
  nccl_.Add(Call{.name = "ncclDevCommCreate", .begin = 18, .end = 19});
  const schema::RankTables t = Run();
  EXPECT_EQ(t.collectives.rows() + t.p2p.rows(), 0u);
  EXPECT_EQ(LossCount(t, "NcclUntied"), 4u);
}

// A collective of copy engines is the copies that were launched within it, on its thread.
TEST_F(DecodeNcclTest, ACollectiveOfCopyEnginesIsItsCopies) {
  const auto copy = [&](std::uint64_t at, std::uint32_t correlation, std::uint64_t begin, std::uint64_t end,
                        std::uint32_t tid = 100) {
    gpu_.Add(
        Api{.name = "cudaMemcpyAsync", .begin = at, .end = at + 1, .correlation = correlation, .tid = tid, .kind = 2});
    gpu_.Add(Copy{.begin = begin, .end = end, .correlation = correlation});
  };
  // The program's own before and after, another thread's, and the collective's: flags, a batch of data, flags.
  copy(90, 1, 900, 910);
  copy(105, 2, 1000, 1001);
  gpu_.Add(Api{.name = "cudaMemcpyBatchAsync", .begin = 107, .end = 109, .correlation = 3, .kind = 2});
  for (std::uint64_t i = 0; i < 3; ++i) gpu_.Add(Copy{.begin = 1100 + i, .end = 1500 + i, .correlation = 3});
  copy(108, 4, 5000, 6000, 101);
  copy(111, 5, 1600, 1601);
  copy(130, 6, 7000, 8000);
  const auto told = [&](std::uint64_t id, std::uint64_t at, std::uint64_t seq) {
    nccl_.Add(Begin{
        .event = NcclEvent::kCollectiveApi, .id = id, .ticks = at, .kind = CollectiveKind::kAllGather, .count = 10});
    nccl_.Add(Begin{.event = NcclEvent::kCopyEngine,
                    .id = id + 1,
                    .ticks = at + 4,
                    .parent = id,
                    .kind = CollectiveKind::kAllGather,
                    .count = 10,
                    .seq = seq});
  };
  told(1, 100, 0);
  nccl_.End(NcclEvent::kCopyEngine, 2, 115);
  // Its end was lost: it is before the thread's next event.
  copy(207, 7, 2000, 2100);
  told(3, 200, 2);
  copy(260, 8, 9000, 9100);
  // One that runs as a kernel with a number that the first one has, too.
  Launch(252, 50, 3000, 3100, "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
  nccl_.Add(Begin{.event = NcclEvent::kKernelLaunch, .id = 5, .ticks = 250});
  nccl_.End(NcclEvent::kKernelLaunch, 5, 255);
  nccl_.Add(Begin{.event = NcclEvent::kCollective,
                  .id = 6,
                  .ticks = 257,
                  .kind = CollectiveKind::kAllGather,
                  .count = 10,
                  .seq = 0});
  nccl_.End(NcclEvent::kCollective, 6, 258);
  // Captured into a graph: it did not run.
  nccl_.Add(Begin{.event = NcclEvent::kCollectiveApi,
                  .id = 7,
                  .ticks = 300,
                  .kind = CollectiveKind::kAllGather,
                  .count = 10,
                  .captured = true});
  nccl_.Add(Begin{.event = NcclEvent::kCopyEngine,
                  .id = 8,
                  .ticks = 301,
                  .parent = 7,
                  .kind = CollectiveKind::kAllGather,
                  .count = 10,
                  .seq = 4});
  nccl_.End(NcclEvent::kCopyEngine, 8, 302);
  const schema::RankTables t = Run();
  ASSERT_EQ(t.collectives.rows(), 3u);
  constexpr std::uint64_t kCopies = std::uint64_t{1} << 41;
  EXPECT_EQ(std::set<std::uint64_t>(t.collectives.seq.begin(), t.collectives.seq.end()),
            (std::set<std::uint64_t>{0, kCopies, kCopies + 2}));
  for (std::size_t i = 0; i < 3; ++i) {
    const bool first = t.collectives.seq[i] == kCopies, kernel = t.collectives.seq[i] == 0;
    EXPECT_EQ(t.collectives.begin_ns[i] - t.copies.begin_ns[0], kernel ? 2100 : first ? 100 : 1100) << i;
    EXPECT_EQ(t.collectives.end_ns[i] - t.collectives.begin_ns[i], kernel ? 100 : first ? 601 : 100) << i;
    EXPECT_EQ(t.collectives.kernel[i] == kNone, !kernel);
    EXPECT_EQ(t.collectives.start[i], 0u);
  }
  EXPECT_EQ(LossCount(t, "NcclUntied"), 0u);
  EXPECT_EQ(LossCount(t, "NcclEventOrphan"), 0u);
}

// Calls alone: communicators of one rank, and where no plugin could be had.
TEST_F(DecodeNcclTest, ACommunicatorOfOneRankIsSeenByItsCallsOnly) {
  nccl_.Add(Comm{.id = 0x111,
                 .ticks = 7,
                 .size = 1,
                 .rank = 0,
                 .comm = kComm2,
                 .source = NcclSource::kInterposed,
                 .name = "solo"});
  nccl_.Add(Call{.name = "ncclAllReduce",
                 .begin = 100,
                 .end = 110,
                 .kind = CollectiveKind::kAllReduce,
                 .count = 10,
                 .seq = 0,
                 .comm = kComm2});
  nccl_.Add(Call{.name = "ncclAllReduce",
                 .begin = 200,
                 .end = 210,
                 .kind = CollectiveKind::kAllReduce,
                 .count = 10,
                 .seq = 1,
                 .comm = kComm2});
  nccl_.Add(Call{.name = "ncclAllReduce",
                 .begin = 300,
                 .end = 310,
                 .kind = CollectiveKind::kAllReduce,
                 .count = 10,
                 .seq = 2,
                 .result = 4,
                 .comm = kComm2});
  gpu_.Add(Api{.name = "cudaMemcpyAsync", .begin = 102, .end = 105, .correlation = 9, .kind = 2});
  GpuCopyRecord copy{};
  copy.head = {RecordKind::kGpuCopy, 1, 2};
  copy.kind = 3, copy.begin_ticks = 400, copy.end_ticks = 450, copy.correlation = 9;
  gpu_.records.Add(copy);
  const schema::RankTables t = Run();
  ASSERT_EQ(t.collectives.rows(), 2u) << "the failed one did nothing";
  EXPECT_EQ(t.collectives.begin_ns, (std::vector<std::int64_t>{200, 400}));
  EXPECT_EQ(t.collectives.end_ns, (std::vector<std::int64_t>{kNoTime, 450})) << "in place: nothing to do";
  EXPECT_EQ(t.collectives.kernel[1], kNone);
  EXPECT_EQ(LossCount(t, "NcclUntied"), 0u);
  EXPECT_EQ(TextOf(t, t.comms.name[t.collectives.comm[0]]), "solo");
}

TEST_F(DecodeNcclTest, WithoutPluginCallsHaveTheKernelsOfTheirGroup) {
  nccl_.Add(Call{.name = "ncclAllReduce",
                 .begin = 100,
                 .end = 120,
                 .kind = CollectiveKind::kAllReduce,
                 .count = 10,
                 .seq = 0,
                 .reduction = 1});
  nccl_.Add(Call{.name = "ncclGroupStart", .begin = 200, .end = 201});
  for (std::uint64_t i = 0; i < 2; ++i)
    nccl_.Add(Call{.name = "ncclReduceScatter",
                   .begin = 210 + 10 * i,
                   .end = 212 + 10 * i,
                   .kind = CollectiveKind::kReduceScatter,
                   .count = 10,
                   .seq = i});
  nccl_.Add(Call{.name = "ncclGroupEnd", .begin = 240, .end = 260});
  // The range that NCCL itself puts around its work is no second call.
  nccl_.Add(Call{.name = "ncclAllReduce",
                 .begin = 101,
                 .end = 119,
                 .kind = CollectiveKind::kAllReduce,
                 .count = 40,
                 .dtype = DataType::kByte,
                 .source = NcclSource::kNvtx});
  Launch(110, 50, 300, 400);
  Launch(250, 51, 500, 600, "ncclDevKernel_ReduceScatter");
  const schema::RankTables t = Run();
  ASSERT_EQ(t.collectives.rows(), 3u);
  EXPECT_EQ(t.collectives.begin_ns, (std::vector<std::int64_t>{300, 500, 500}));
  EXPECT_EQ(t.collectives.kernel_operations, (std::vector<std::uint32_t>{1, 2, 2}));
  EXPECT_EQ(t.collectives.bytes[1], 160u);
  EXPECT_EQ(t.collectives.dtype[0], static_cast<int>(DataType::kFloat32));
}

TEST_F(DecodeNcclTest, NvtxAloneTellsBytes) {
  nccl_.Add(Call{.name = "ncclAllGather",
                 .begin = 100,
                 .end = 120,
                 .kind = CollectiveKind::kAllGather,
                 .count = 64,
                 .dtype = DataType::kByte,
                 .seq = 3,
                 .source = NcclSource::kNvtx});
  Launch(110, 50, 300, 400, "ncclDevKernel_AllGather_RING_LL");
  const schema::RankTables t = Run();
  ASSERT_EQ(t.collectives.rows(), 1u);
  EXPECT_EQ(t.collectives.bytes[0], 256u);
  EXPECT_EQ(t.collectives.seq[0], 3u);
  EXPECT_EQ(t.collectives.begin_ns[0], 300);
}

TEST_F(DecodeNcclTest, OfAnUnknownTypeTheBytesAreUnknown) {
  nccl_.Add(Call{.name = "ncclAllReduce",
                 .begin = 100,
                 .end = 120,
                 .kind = CollectiveKind::kAllReduce,
                 .count = 64,
                 .dtype = DataType::kUnknown});
  Launch(110, 50, 300, 400);
  const schema::RankTables t = Run();
  ASSERT_EQ(t.collectives.rows(), 1u);
  EXPECT_EQ(t.collectives.dtype[0], static_cast<int>(DataType::kUnknown));
  EXPECT_EQ(t.collectives.count[0], 64u);
  EXPECT_EQ(t.collectives.bytes[0], 0u);
}

TEST_F(DecodeNcclTest, EndsWithoutBeginsAreCounted) {
  nccl_.End(NcclEvent::kCollective, 4711, 100);
  nccl_.Add(Begin{.event = NcclEvent::kCollective,
                  .id = 2,
                  .ticks = 110,
                  .parent = 99,
                  .kind = CollectiveKind::kAllReduce,
                  .count = 10,
                  .seq = 0});
  nccl_.End(NcclEvent::kCollective, 2, 105);  // Clocks of two cores.
  const schema::RankTables t = Run();
  EXPECT_EQ(t.collectives.rows(), 1u);
  EXPECT_EQ(t.collectives.post_end_ns[0], 110);
  EXPECT_EQ(LossCount(t, "NcclEventOrphan"), 1u);
}

TEST_F(DecodeNcclTest, TheWordOfThePluginIdentifiesACommunicator) {
  nccl_.Add(Comm{.id = 0x5, .ticks = 10, .comm = kComm2, .source = NcclSource::kInterposed, .name = "dp"});
  nccl_.Add(Comm{.id = 0x99, .ticks = 11, .size = 8, .rank = 3, .comm = kComm2, .parent = 0xabc});
  nccl_.Add(Comm{.id = 0x6, .ticks = 12, .comm = kComm2, .source = NcclSource::kInterposed});
  nccl_.Add(Comm{.id = 0, .ticks = 500, .comm = kComm2, .flags = 64});
  // The plugin's number and the interposed one of the same communicator.
  nccl_.Add(Comm{.id = 0xabc, .ticks = 13, .comm = kNcclCommBit | 9, .source = NcclSource::kInterposed});
  const schema::RankTables t = Run();
  ASSERT_EQ(t.comms.rows(), 2u);
  EXPECT_EQ(t.comms.global_id, (std::vector<std::uint64_t>{0xabc, 0x99}));
  EXPECT_EQ(t.comms.size[1], 8u);
  EXPECT_EQ(t.comms.rank[1], 3);
  EXPECT_EQ(t.comms.parent_id[1], 0xabcu);
  EXPECT_EQ(t.comms.end_ns[1], 500);
  EXPECT_EQ(TextOf(t, t.comms.name[1]), "dp");
  EXPECT_EQ(t.comms.unidentified, (std::vector<std::uint8_t>{0, 0}));
}

TEST_F(DecodeNcclTest, TheJobsRankIsNcclsOnlyWhereOneCommunicatorHoldsTheJob) {
  const auto ranks = [&](std::string_view meta) { return MetaOf(Tables(GpuProcess(gpu_, &nccl_, meta)), "rank"); };
  EXPECT_EQ(ranks("clock_mode\traw\nworld_size\t4\n"), "2");
  EXPECT_EQ(ranks("clock_mode\traw\nworld_size\t8\n"), "<absent>");
  EXPECT_EQ(ranks("clock_mode\traw\n"), "<absent>");
  EXPECT_EQ(ranks("clock_mode\traw\nworld_size\t4\nrank\t1\n"), "1");
  const schema::RankTables t = Tables(GpuProcess(gpu_, &nccl_, "clock_mode\traw\nworld_size\t4\n"));
  EXPECT_EQ(t.processes.world_rank[0], 2);
  EXPECT_EQ(t.processes.rank_source[0], 3);
  nccl_.Add(Comm{.id = 0x77, .ticks = 9, .size = 4, .rank = 1, .comm = kComm2});
  EXPECT_EQ(ranks("clock_mode\traw\nworld_size\t4\n"), "<absent>") << "two orders of the same ranks";
}

// With --nccl-kernel-channels NCCL tells its kernels' times itself, by the GPU's timer and some time after.
TEST_F(DecodeNcclTest, KernelChannelsGiveTimesWhereCuptiHasNone) {
  constexpr std::uint64_t kEpoch = 1'756'135'989'000'000'000;
  const auto channel = [&](std::uint64_t id, std::uint64_t parent, std::uint64_t from, std::uint64_t to,
                           std::uint64_t delay) {
    nccl_.Add(Begin{
        .event = NcclEvent::kKernelChannel, .id = id, .ticks = from + delay, .parent = parent, .count = kEpoch + from});
    nccl_.records.Add(NcclEndRecord{{RecordKind::kNcclEnd, static_cast<std::uint8_t>(NcclEvent::kKernelChannel), 1},
                                    0,
                                    id,
                                    to + 3 * delay,
                                    kEpoch + to});
  };
  nccl_.Add(
      Begin{.event = NcclEvent::kCollective, .id = 2, .ticks = 100, .kind = CollectiveKind::kAllReduce, .count = 10});
  channel(3, 2, 300, 900, 7);
  channel(4, 2, 280, 880, 9);
  const schema::RankTables t = Run();
  ASSERT_EQ(t.collectives.rows(), 1u);
  EXPECT_EQ(t.collectives.begin_ns[0], 287) << "the smallest delay is the clocks' difference";
  EXPECT_EQ(t.collectives.end_ns[0], 907);
  EXPECT_EQ(t.collectives.enqueue_begin_ns[0], 100);
  EXPECT_EQ(t.collectives.kernel[0], kNone);
  EXPECT_EQ(LossCount(t, "NcclUntied"), 0u);
}

// The GPU is behind the host: the last operations of a window run when recording is off.
TEST_F(DecodeNcclTest, OperationsThatRanAfterTheirWindowAreNoLoss) {
  nccl_.records.Add(WindowRecord{{RecordKind::kWindow, 1, 1}, WindowCause::kSteps, 0, 0, 50, 10, 0});
  for (std::uint64_t i = 0; i < 4; ++i) {
    const std::uint64_t at = 100 + 100 * i;
    nccl_.Add(Begin{.event = NcclEvent::kKernelLaunch, .id = 1 + 2 * i, .ticks = at});
    nccl_.End(NcclEvent::kKernelLaunch, 1 + 2 * i, at + 10);
    nccl_.Add(Begin{.event = NcclEvent::kCollective,
                    .id = 2 + 2 * i,
                    .ticks = at + 11,
                    .kind = CollectiveKind::kAllReduce,
                    .count = 10,
                    .seq = i});
    // The second's kernel was lost otherwise.
    if (i == 0 || i == 2) Launch(at + 1, static_cast<std::uint32_t>(50 + i), at + 50, at + 60);
  }
  nccl_.records.Add(WindowRecord{{RecordKind::kWindow, 0, 1}, WindowCause::kSteps, 0, 0, 600, 20, 0});
  const schema::RankTables t = Tables(GpuProcess(gpu_, &nccl_, "clock_mode\traw\nrank\t0\nrecording\tsteps\n"));
  ASSERT_EQ(t.collectives.rows(), 4u);
  EXPECT_EQ(LossCount(t, "NcclUntied"), 1u);
  EXPECT_EQ(LossCount(t, "GpuOutOfWindow"), 1u);
}

TEST_F(DecodeNcclTest, NoKernelAtAllIsSuspicious) {
  nccl_.Add(
      Begin{.event = NcclEvent::kCollective, .id = 2, .ticks = 110, .kind = CollectiveKind::kAllReduce, .count = 10});
  const schema::RankTables t = Run();
  EXPECT_EQ(LossCount(t, "ZeroRecords"), 1u);
  EXPECT_EQ(LossCount(t, "NcclUntied"), 1u);
}

}  // namespace
}  // namespace lockstep::trace
