// NCCL's events -> operations, each with its kernel.

#include "nccl_fixture.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
using schema::kNoTime;

// Version 5 and 6, one call: the launch is told before what it carries.
TEST_F(DecodeNcclTest, AnOperationHasTheKernelLaunchedBeforeIt) {
  nccl_.Add(Begin{NcclEvent::kGroupApi, 1, 100});
  nccl_.Add(Begin{.event = NcclEvent::kCollectiveApi,
                  .id = 2,
                  .ticks = 102,
                  .parent = 1,
                  .kind = CollectiveKind::kAllReduce,
                  .count = 1000});
  nccl_.End(NcclEvent::kCollectiveApi, 2, 104);
  nccl_.Add(Begin{.event = NcclEvent::kKernelLaunch, .id = 3, .ticks = 110, .parent = 1});
  nccl_.End(NcclEvent::kKernelLaunch, 3, 120);
  nccl_.Add(Begin{.event = NcclEvent::kGroup, .id = 4, .ticks = 121});
  nccl_.Add(Begin{.event = NcclEvent::kCollective,
                  .id = 5,
                  .ticks = 122,
                  .parent = 2,
                  .group = 4,
                  .kind = CollectiveKind::kAllReduce,
                  .count = 1000,
                  .seq = 17,
                  .buffer = 0x7f00,
                  .algorithm = "RING"});
  nccl_.End(NcclEvent::kCollective, 5, 123);
  nccl_.End(NcclEvent::kGroup, 4, 124);
  nccl_.End(NcclEvent::kGroupApi, 1, 125);
  nccl_.Add(Call{.name = "ncclAllReduce",
                 .begin = 99,
                 .end = 130,
                 .kind = CollectiveKind::kAllReduce,
                 .count = 1000,
                 .reduction = 1});
  Launch(112, 50, 300, 900);
  gpu_.Add(Kernel{.name = "gemm", .begin = 100, .end = 290, .correlation = 49});
  const schema::RankTables t = Run();
  ASSERT_EQ(t.collectives.rows(), 1u);
  const auto row = t.collectives.Get(0);
  EXPECT_EQ(KernelBegin(t, row.kernel), 300);
  EXPECT_EQ(row.kernel_operations, 1u);
  EXPECT_EQ(row.begin_ns, 300);
  EXPECT_EQ(row.end_ns, 900);
  EXPECT_EQ(row.wait_begin_ns, 300);
  EXPECT_EQ(row.enqueue_begin_ns, 99);
  EXPECT_EQ(row.post_end_ns, 130);
  EXPECT_EQ(row.mode, 3);
  EXPECT_EQ(row.kind, static_cast<int>(CollectiveKind::kAllReduce));
  EXPECT_EQ(row.seq, 17u);
  EXPECT_EQ(row.bytes, 4000u);
  EXPECT_EQ(row.count, 1000u);
  EXPECT_EQ(row.reduction, 1);
  EXPECT_EQ(row.channels, 4);
  EXPECT_EQ(row.buffer, 0x7f00u);
  EXPECT_EQ(TextOf(t, row.algorithm), "RING");
  EXPECT_EQ(t.comms.kind[row.comm], 3);
  EXPECT_EQ(t.comms.global_id[row.comm], 0xabcu);
  EXPECT_EQ(t.comms.rank[row.comm], 2);
  EXPECT_EQ(t.kernels.work[row.kernel], 1);
  EXPECT_EQ(t.kernels.work_rule[row.kernel], 1);
  EXPECT_EQ(t.kernels.work[0], 0);
  for (const char* loss : {"NcclUntied", "NcclKernelUntied", "NcclEventOrphan", "RequestNeverCompleted",
                           "CommUnidentified", "UnknownRecord"})
    EXPECT_EQ(LossCount(t, loss), 0u) << loss;
}

TEST_F(DecodeNcclTest, GroupedOperationsShareTheirKernelAndSaySo) {
  nccl_.Add(Call{.name = "ncclGroupStart", .begin = 90, .end = 91});
  nccl_.Add(Begin{NcclEvent::kGroupApi, 1, 90});
  for (std::uint64_t i = 0; i < 3; ++i) {
    nccl_.Add(Begin{.event = NcclEvent::kCollectiveApi,
                    .id = 10 + i,
                    .ticks = 100 + 10 * i,
                    .parent = 1,
                    .kind = CollectiveKind::kAllReduce,
                    .count = 10 + i});
    nccl_.Add(Call{.name = "ncclAllReduce",
                   .begin = 99 + 10 * i,
                   .end = 105 + 10 * i,
                   .kind = CollectiveKind::kAllReduce,
                   .count = 10 + i});
  }
  // NCCL orders what is in a group by size.
  nccl_.Add(Begin{.event = NcclEvent::kKernelLaunch, .id = 3, .ticks = 200, .parent = 1});
  nccl_.End(NcclEvent::kKernelLaunch, 3, 210);
  for (std::uint64_t i = 3; i-- > 0;)
    nccl_.Add(Begin{.event = NcclEvent::kCollective,
                    .id = 20 + i,
                    .ticks = 220 - i,
                    .parent = 10 + i,
                    .group = 4,
                    .kind = CollectiveKind::kAllReduce,
                    .count = 10 + i,
                    .seq = 2 - i});
  nccl_.Add(Call{.name = "ncclGroupEnd", .begin = 190, .end = 230});
  Launch(205, 50, 300, 900);
  const schema::RankTables t = Run();
  ASSERT_EQ(t.collectives.rows(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(t.collectives.kernel[i], 0u);
    EXPECT_EQ(t.collectives.kernel_operations[i], 3u);
    EXPECT_EQ(t.collectives.count[i], 10 + i) << "in order of the calls";
    EXPECT_EQ(t.collectives.seq[i], 2 - i);
    EXPECT_EQ(t.collectives.enqueue_begin_ns[i], static_cast<std::int64_t>(99 + 10 * i));
  }
}

TEST_F(DecodeNcclTest, TwoCommunicatorsInOneGroupHaveAKernelEach) {
  nccl_.Add(Comm{.id = 0xdef, .ticks = 6, .size = 2, .rank = 1, .comm = kComm2});
  nccl_.Add(Begin{NcclEvent::kGroupApi, 1, 90});
  for (std::uint32_t c = 0; c < 2; ++c)
    nccl_.Add(Begin{.event = NcclEvent::kCollectiveApi,
                    .id = 10 + c,
                    .ticks = 100 + c,
                    .parent = 1,
                    .kind = CollectiveKind::kAllReduce,
                    .count = 10,
                    .comm = kComm1 + c});
  for (std::uint32_t c = 0; c < 2; ++c) {
    nccl_.Add(
        Begin{.event = NcclEvent::kKernelLaunch, .id = 20 + c, .ticks = 200 + 20 * c, .parent = 1, .comm = kComm1 + c});
    nccl_.End(NcclEvent::kKernelLaunch, 20 + c, 208 + 20 * c);
  }
  // Both launches first, then both operations: the communicator decides.
  for (std::uint32_t c = 2; c-- > 0;)
    nccl_.Add(Begin{.event = NcclEvent::kCollective,
                    .id = 30 + c,
                    .ticks = 260 - c,
                    .parent = 10 + c,
                    .kind = CollectiveKind::kAllReduce,
                    .count = 10,
                    .comm = kComm1 + c});
  Launch(204, 50, 300, 400);
  Launch(224, 51, 500, 600);
  const schema::RankTables t = Run();
  ASSERT_EQ(t.collectives.rows(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const bool second = t.comms.global_id[t.collectives.comm[i]] == 0xdef;
    EXPECT_EQ(t.collectives.begin_ns[i], second ? 500 : 300);
    EXPECT_EQ(t.collectives.kernel_operations[i], 1u);
  }
}

TEST_F(DecodeNcclTest, ALaunchOfAnotherGroupIsNotTaken) {
  nccl_.Add(Begin{NcclEvent::kGroupApi, 1, 90});
  nccl_.Add(Begin{.event = NcclEvent::kKernelLaunch, .id = 3, .ticks = 100, .parent = 1});
  nccl_.End(NcclEvent::kKernelLaunch, 3, 110);
  nccl_.Add(Begin{NcclEvent::kGroupApi, 2, 200});
  nccl_.Add(Begin{.event = NcclEvent::kCollectiveApi,
                  .id = 4,
                  .ticks = 201,
                  .parent = 2,
                  .kind = CollectiveKind::kAllReduce,
                  .count = 10});
  nccl_.Add(Begin{.event = NcclEvent::kCollective,
                  .id = 5,
                  .ticks = 202,
                  .parent = 4,
                  .kind = CollectiveKind::kAllReduce,
                  .count = 10});
  Launch(105, 50, 300, 400);
  const schema::RankTables t = Run();
  ASSERT_EQ(t.collectives.rows(), 1u);
  EXPECT_EQ(t.collectives.kernel[0], kNone);
  EXPECT_EQ(t.collectives.end_ns[0], kNoTime);
  EXPECT_EQ(t.collectives.begin_ns[0], 201);
  EXPECT_EQ(LossCount(t, "NcclUntied"), 1u);
  EXPECT_EQ(LossCount(t, "NcclKernelUntied"), 1u);
  EXPECT_EQ(LossCount(t, "RequestNeverCompleted"), 0u);
}

// NCCL 2.29.2 and later: of ncclBroadcast only the API event comes, and of its kernel nothing.
TEST_F(DecodeNcclTest, ABroadcastOfWhichOnlyTheCallIsToldHasTheKernelOfItsGroup) {
  for (const bool calls : {false, true}) {
    nccl_ = NcclThread();
    gpu_ = GpuThread();
    nccl_.Add(Comm{.id = 0xabc, .ticks = 5, .size = 4, .rank = 2});
    const auto group = [&](std::uint64_t id, std::uint64_t at) { nccl_.Add(Begin{NcclEvent::kGroupApi, id, at}); };
    const auto api = [&](std::uint64_t id, std::uint64_t parent, std::uint64_t at, CollectiveKind kind,
                         std::uint64_t count, std::int32_t root = -1) {
      nccl_.Add(Begin{.event = NcclEvent::kCollectiveApi,
                      .id = id,
                      .ticks = at,
                      .parent = parent,
                      .kind = kind,
                      .count = count,
                      .peer = root});
      nccl_.End(NcclEvent::kCollectiveApi, id, at + 1);
    };
    const auto call = [&](CollectiveKind kind, std::uint64_t begin, std::uint64_t end, std::uint64_t count,
                          std::uint64_t seq) {
      if (!calls) return;
      nccl_.Add(Call{.name = "ncclBroadcast", .begin = begin, .end = end, .kind = kind, .count = count, .seq = seq});
    };
    const auto launch = [&](std::uint64_t id, std::uint64_t parent, std::uint64_t at) {
      nccl_.Add(Begin{.event = NcclEvent::kKernelLaunch, .id = id, .ticks = at, .parent = parent});
      nccl_.End(NcclEvent::kKernelLaunch, id, at + 5);
    };
    const auto told = [&](std::uint64_t id, std::uint64_t parent, std::uint64_t at, std::uint64_t seq) {
      nccl_.Add(Begin{.event = NcclEvent::kCollective,
                      .id = id,
                      .ticks = at,
                      .parent = parent,
                      .kind = CollectiveKind::kAllReduce,
                      .count = 9,
                      .seq = seq});
    };
    // Alone. The kernel comes after the API event has ended.
    group(1, 100);
    api(2, 1, 101, CollectiveKind::kBroadcast, 7, 1);
    Launch(110, 50, 1000, 1100, "ncclDevKernel_Broadcast_RING_LL");
    nccl_.End(NcclEvent::kGroupApi, 1, 120);
    call(CollectiveKind::kBroadcast, 99, 121, 7, 0);
    // With an all-reduce, whose kernel is announced.
    if (calls) nccl_.Add(Call{.name = "ncclGroupStart", .begin = 190, .end = 191});
    group(3, 200);
    api(4, 3, 201, CollectiveKind::kAllReduce, 9);
    call(CollectiveKind::kAllReduce, 200, 203, 9, 0);
    api(5, 3, 205, CollectiveKind::kBroadcast, 8, 0);
    call(CollectiveKind::kBroadcast, 204, 207, 8, 1);
    launch(6, 3, 210);
    Launch(211, 51, 2000, 2100);
    told(7, 4, 216, 0);
    nccl_.End(NcclEvent::kGroupApi, 3, 220);
    if (calls) nccl_.Add(Call{.name = "ncclGroupEnd", .begin = 208, .end = 221});
    // Two roots in one group: one kernel for both, beside the program's own.
    if (calls) nccl_.Add(Call{.name = "ncclGroupStart", .begin = 290, .end = 291});
    group(8, 300);
    api(9, 8, 301, CollectiveKind::kBroadcast, 20, 0);
    call(CollectiveKind::kBroadcast, 300, 303, 20, 2);
    api(10, 8, 305, CollectiveKind::kBroadcast, 21, 1);
    call(CollectiveKind::kBroadcast, 304, 307, 21, 3);
    Launch(309, 60, 2900, 2910, "gemm");
    Launch(310, 52, 3000, 3100, "ncclDevKernel_AllGatherV_RING_LL");
    nccl_.End(NcclEvent::kGroupApi, 8, 320);
    if (calls) nccl_.Add(Call{.name = "ncclGroupEnd", .begin = 308, .end = 321});
    const schema::RankTables t = Run();
    ASSERT_EQ(t.collectives.rows(), 5u) << calls;
    EXPECT_EQ(t.collectives.begin_ns, (std::vector<std::int64_t>{1000, 2000, 2000, 3000, 3000})) << calls;
    EXPECT_EQ(t.collectives.kernel_operations, (std::vector<std::uint32_t>{1, 2, 2, 2, 2}));
    EXPECT_EQ(t.collectives.seq, (std::vector<std::uint64_t>{0, 0, 1, 2, 3}));
    EXPECT_EQ(t.collectives.count, (std::vector<std::uint64_t>{7, 9, 8, 20, 21}));
    EXPECT_EQ(t.collectives.root,
              (std::vector<std::int32_t>{calls ? -1 : 1, -1, calls ? -1 : 0, calls ? -1 : 0, calls ? -1 : 1}));
    for (const char* loss : {"NcclUntied", "NcclKernelUntied", "NcclEventOrphan"})
      EXPECT_EQ(LossCount(t, loss), 0u) << loss << calls;
  }
}

// Two communicators in a group, whose kernels nobody announced: the stream decides, where an operation showed it.
TEST_F(DecodeNcclTest, UnannouncedKernelsOfOneGroupGoByTheirStream) {
  nccl_.Add(Comm{.id = 0xdef, .ticks = 6, .size = 2, .rank = 1, .comm = kComm2});
  for (std::uint32_t c = 0; c < 2; ++c) {
    nccl_.Add(Call{.name = "ncclAllReduce",
                   .begin = 20 + 10 * c,
                   .end = 28 + 10 * c,
                   .kind = CollectiveKind::kAllReduce,
                   .count = 1,
                   .stream = 0x20 + c,
                   .comm = kComm1 + c});
    Launch(22 + 10 * c, 40 + c, 500 + 100 * c, 550 + 100 * c, kAllReduceKernel, 100, 20 + c);
  }
  nccl_.Add(Call{.name = "ncclGroupStart", .begin = 90, .end = 91});
  for (std::uint32_t c = 0; c < 2; ++c)
    nccl_.Add(Call{.name = "ncclBroadcast",
                   .begin = 100 + 10 * c,
                   .end = 108 + 10 * c,
                   .kind = CollectiveKind::kBroadcast,
                   .count = 5 + c,
                   .stream = 0x20 + c,
                   .comm = kComm1 + c});
  nccl_.Add(Call{.name = "ncclGroupEnd", .begin = 120, .end = 160});
  Launch(131, 51, 3000, 3100, "ncclDevKernel_Broadcast_RING_LL", 100, 21);
  Launch(135, 50, 4000, 4100, "ncclDevKernel_Broadcast_RING_LL", 100, 20);
  const schema::RankTables t = Run();
  ASSERT_EQ(t.collectives.rows(), 4u);
  EXPECT_EQ(t.collectives.begin_ns, (std::vector<std::int64_t>{500, 600, 3000, 4000}));
  EXPECT_EQ(t.collectives.count, (std::vector<std::uint64_t>{1, 1, 6, 5})) << "on their streams";
}

// CUDA_LAUNCH_BLOCKING with proxies: what is carried comes from a callback's thread, even before the launch.
TEST_F(DecodeNcclTest, OperationsOfACallbackThreadGoByTheirGroup) {
  NcclThread callback;
  nccl_.Add(Begin{NcclEvent::kGroupApi, 1, 90});
  nccl_.Add(Begin{.event = NcclEvent::kCollectiveApi,
                  .id = 2,
                  .ticks = 95,
                  .parent = 1,
                  .kind = CollectiveKind::kAllReduce,
                  .count = 10});
  nccl_.Add(Begin{.event = NcclEvent::kCollectiveApi,
                  .id = 3,
                  .ticks = 97,
                  .parent = 1,
                  .kind = CollectiveKind::kAllReduce,
                  .count = 20});
  for (std::uint64_t plan = 0; plan < 2; ++plan) {
    nccl_.Add(Begin{.event = NcclEvent::kKernelLaunch, .id = 10 + plan, .ticks = 200 + 100 * plan, .parent = 1});
    nccl_.End(NcclEvent::kKernelLaunch, 10 + plan, 250 + 100 * plan);
    callback.Add(Begin{.event = NcclEvent::kCollective,
                       .id = 20 + plan,
                       .ticks = 150 + 100 * plan,
                       .parent = 2 + plan,
                       .group = 30 + plan,
                       .kind = CollectiveKind::kAllReduce,
                       .count = 10 * (plan + 1),
                       .seq = plan});
  }
  Launch(210, 50, 400, 500);
  Launch(310, 51, 600, 700);
  SpoolBuilder spool = GpuProcess(gpu_, &nccl_);
  spool.Thread(3, 333).Records(callback.records, 3);
  const schema::RankTables t = Tables(spool);
  ASSERT_EQ(t.collectives.rows(), 2u);
  EXPECT_EQ(t.collectives.begin_ns, (std::vector<std::int64_t>{400, 600}));
  EXPECT_EQ(t.collectives.seq, (std::vector<std::uint64_t>{0, 1}));
  EXPECT_EQ(t.threads.tid[t.collectives.thread[0]], 100) << "who called";
}

// Version 4 is told of neither calls nor launches.
TEST_F(DecodeNcclTest, Version4GoesByTheLastLaunchBeforeTheGroup) {
  for (std::uint64_t i = 0; i < 2; ++i) {
    const std::uint64_t at = 100 + 100 * i;
    nccl_.Add(Begin{NcclEvent::kGroup, 1 + 10 * i, at + 20});
    nccl_.Add(Begin{.event = NcclEvent::kCollective,
                    .id = 2 + 10 * i,
                    .ticks = at + 21,
                    .parent = 1 + 10 * i,
                    .kind = CollectiveKind::kAllGather,
                    .count = 64,
                    .dtype = DataType::kInt8,
                    .seq = i,
                    .buffer = 0x100 + i});
    nccl_.End(NcclEvent::kGroup, 1 + 10 * i, at + 25);
  }
  // A third whose kernel is not there must not take the second's.
  nccl_.Add(Begin{NcclEvent::kGroup, 50, 400});
  nccl_.Add(Begin{.event = NcclEvent::kCollective,
                  .id = 51,
                  .ticks = 401,
                  .parent = 50,
                  .kind = CollectiveKind::kAllGather,
                  .count = 64,
                  .dtype = DataType::kInt8,
                  .seq = 2});
  Launch(105, 50, 500, 600, "ncclDevKernel_AllGather_RING_LL");
  Launch(205, 51, 700, 800, "ncclDevKernel_AllGather_RING_LL");
  Launch(210, 52, 900, 950, "memcpy_like_kernel");
  const schema::RankTables t = Run();
  ASSERT_EQ(t.collectives.rows(), 3u);
  EXPECT_EQ(t.collectives.seq, (std::vector<std::uint64_t>{2, 0, 1}));
  EXPECT_EQ(t.collectives.begin_ns, (std::vector<std::int64_t>{401, 500, 700}));
  EXPECT_EQ(t.collectives.bytes[1], 256u) << "NCCL counts bytes of one rank";
  EXPECT_EQ(LossCount(t, "NcclUntied"), 1u);
}

TEST_F(DecodeNcclTest, Version4TakesTheCallersWordsFromTheGroup) {
  nccl_.Add(Call{.name = "ncclGroupStart", .begin = 90, .end = 91});
  nccl_.Add(Call{.name = "ncclAllReduce",
                 .begin = 92,
                 .end = 93,
                 .kind = CollectiveKind::kAllReduce,
                 .count = 100,
                 .dtype = DataType::kBfloat16,
                 .buffer = 0xa,
                 .reduction = 5});
  nccl_.Add(Call{.name = "ncclAllReduce",
                 .begin = 94,
                 .end = 95,
                 .kind = CollectiveKind::kAllReduce,
                 .count = 100,
                 .dtype = DataType::kBfloat16,
                 .buffer = 0xb,
                 .reduction = 3});
  nccl_.Add(Begin{NcclEvent::kGroup, 1, 120});
  nccl_.Add(Begin{.event = NcclEvent::kCollective,
                  .id = 2,
                  .ticks = 121,
                  .parent = 1,
                  .kind = CollectiveKind::kAllReduce,
                  .count = 100,
                  .dtype = DataType::kBfloat16,
                  .seq = 0,
                  .buffer = 0xb});
  nccl_.Add(Begin{.event = NcclEvent::kCollective,
                  .id = 3,
                  .ticks = 122,
                  .parent = 1,
                  .kind = CollectiveKind::kAllReduce,
                  .count = 100,
                  .dtype = DataType::kBfloat16,
                  .seq = 1,
                  .buffer = 0xa});
  nccl_.Add(Call{.name = "ncclGroupEnd", .begin = 100, .end = 130});
  Launch(105, 50, 500, 600);
  const schema::RankTables t = Run();
  ASSERT_EQ(t.collectives.rows(), 2u) << "calls that the plugin told of are not counted again";
  EXPECT_EQ(t.collectives.reduction, (std::vector<std::uint8_t>{5, 3}));
  EXPECT_EQ(t.collectives.seq, (std::vector<std::uint64_t>{1, 0}));
  EXPECT_EQ(t.collectives.bytes[0], 200u);
  EXPECT_EQ(t.collectives.kernel_operations[0], 2u);
}

TEST_F(DecodeNcclTest, BytesAreTheWholeArray) {
  struct {
    CollectiveKind kind;
    std::uint64_t count, bytes;
    DataType told;
  } cases[] = {
      {CollectiveKind::kAllReduce, 100, 400, DataType::kFloat32},
      {CollectiveKind::kAllGather, 100, 1600, DataType::kInt8},
      {CollectiveKind::kReduceScatter, 100, 1600, DataType::kFloat32},
      {CollectiveKind::kBroadcast, 100, 400, DataType::kInt8},
      {CollectiveKind::kReduce, 100, 400, DataType::kFloat32},
  };
  std::uint64_t id = 1, at = 100;
  for (const auto& c : cases) {
    // With the caller's count, then with NCCL's own only.
    for (const bool api : {true, false}) {
      if (api)
        nccl_.Add(Begin{.event = NcclEvent::kCollectiveApi, .id = ++id, .ticks = at, .kind = c.kind, .count = c.count});
      const std::uint64_t parent = api ? id : 0;
      const std::uint64_t told = c.told == DataType::kInt8 ? c.count * 4 : c.count;
      nccl_.Add(Begin{.event = NcclEvent::kCollective,
                      .id = ++id,
                      .ticks = at + 1,
                      .parent = parent,
                      .kind = c.kind,
                      .count = told,
                      .dtype = c.told,
                      .seq = api});
      at += 10;
    }
  }
  const schema::RankTables t = Run();
  ASSERT_EQ(t.collectives.rows(), 10u);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(t.collectives.bytes[i], cases[i / 2].bytes) << i;
  EXPECT_EQ(t.collectives.dtype[2], static_cast<int>(DataType::kFloat32)) << "the caller's type";
}

TEST_F(DecodeNcclTest, MessagesAreNumberedByPartnerInOrderOfCalls) {
  nccl_.Add(Begin{NcclEvent::kGroupApi, 1, 90});
  std::uint64_t id = 10;
  for (int round = 0; round < 2; ++round)
    for (std::int32_t peer : {0, 3})
      for (const bool receive : {false, true}) {
        nccl_.Add(Begin{
            .event = NcclEvent::kP2pApi, .id = ++id, .ticks = 90 + id, .parent = 1, .count = 8, .receive = receive});
        nccl_.Add(Begin{.event = NcclEvent::kP2p,
                        .id = id + 100,
                        .ticks = 500 - id,
                        .parent = id,
                        .count = 8,
                        .peer = peer,
                        .receive = receive});
      }
  nccl_.Add(Begin{.event = NcclEvent::kKernelLaunch, .id = 3, .ticks = 200, .parent = 1});
  nccl_.End(NcclEvent::kKernelLaunch, 3, 210);
  Launch(205, 50, 600, 700, "ncclDevKernel_SendRecv");
  // Later alone.
  nccl_.Add(Begin{NcclEvent::kGroupApi, 2, 800});
  nccl_.Add(Begin{.event = NcclEvent::kP2pApi, .id = 4, .ticks = 801, .parent = 2, .count = 8});
  nccl_.Add(Begin{.event = NcclEvent::kKernelLaunch, .id = 5, .ticks = 802, .parent = 2});
  nccl_.End(NcclEvent::kKernelLaunch, 5, 810);
  nccl_.Add(Begin{.event = NcclEvent::kP2p, .id = 6, .ticks = 811, .parent = 4, .count = 8, .peer = 3});
  Launch(803, 51, 900, 950, "ncclDevKernel_SendRecv");
  const schema::RankTables t = Run();
  ASSERT_EQ(t.p2p.rows(), 9u);
  EXPECT_EQ(t.collectives.rows(), 0u);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(t.p2p.seq[i], i / 4) << i;
    EXPECT_EQ(t.p2p.peer[i], i / 2 % 2 ? 3 : 0);
    EXPECT_EQ(t.p2p.direction[i], i % 2);
    EXPECT_EQ(t.p2p.begin_ns[i], 600);
    EXPECT_EQ(t.p2p.end_ns[i], 700);
    EXPECT_EQ(t.p2p.mode[i], 3);
    EXPECT_EQ(t.p2p.bytes[i], 32u);
  }
  EXPECT_EQ(t.p2p.seq[8], 2u);
  EXPECT_EQ(t.p2p.begin_ns[8], 900);
  EXPECT_EQ(t.p2p.tag[8], 0);
  EXPECT_EQ(LossCount(t, "RequestNeverCompleted"), 0u);
}

// What ncclAlltoAll makes of itself is one collective to its caller.
TEST_F(DecodeNcclTest, SendsAndReceivesOfAnAllToAllAreOneCollective) {
  nccl_.Add(Begin{NcclEvent::kGroupApi, 1, 90});
  for (std::uint64_t peer = 0; peer < 4; ++peer)
    nccl_.Add(Begin{.event = NcclEvent::kP2pApi, .id = 10 + peer, .ticks = 95 + peer, .parent = 1, .count = 8});
  nccl_.Add(Begin{.event = NcclEvent::kKernelLaunch, .id = 3, .ticks = 110, .parent = 1});
  nccl_.End(NcclEvent::kKernelLaunch, 3, 120);
  for (std::uint64_t peer = 0; peer < 4; ++peer)
    nccl_.Add(Begin{.event = NcclEvent::kP2p,
                    .id = 20 + peer,
                    .ticks = 121 + peer,
                    .parent = 10 + peer,
                    .count = 8,
                    .peer = static_cast<std::int32_t>(peer)});
  nccl_.Add(
      Call{.name = "ncclAlltoAll", .begin = 89, .end = 130, .kind = CollectiveKind::kAllToAll, .count = 8, .seq = 6});
  Launch(112, 50, 300, 400, "ncclDevKernel_SendRecv");
  const schema::RankTables t = Run();
  EXPECT_EQ(t.p2p.rows(), 0u);
  ASSERT_EQ(t.collectives.rows(), 1u);
  EXPECT_EQ(t.collectives.kind[0], static_cast<int>(CollectiveKind::kAllToAll));
  EXPECT_EQ(t.collectives.bytes[0], 128u);
  EXPECT_EQ(t.collectives.seq[0], 6u);
  EXPECT_EQ(t.collectives.begin_ns[0], 300);
}

}  // namespace
}  // namespace lockstep::trace
