// NCCL's events and calls -> operations, each with its kernel.

#include "decode_fixture.h"
#include "gpu_thread_records.h"

namespace lockstep {
namespace {

using schema::kNone;
using schema::kNoTime;
using Begin = NcclThread::Begin;
using Call = NcclThread::Call;
using Comm = NcclThread::Comm;
using Kernel = GpuThread::Kernel;
using Api = GpuThread::Api;

constexpr std::uint32_t kComm1 = kNcclCommBit | 1, kComm2 = kNcclCommBit | 2;
constexpr std::string_view kAllReduceKernel =
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";

class DecodeNcclTest : public DecodeTest {
 protected:
  DecodeNcclTest() { nccl_.Add(Comm{.id = 0xabc, .ticks = 5, .size = 4, .rank = 2}); }
  // A launch on `tid` and its kernel.
  void Launch(std::uint64_t at, std::uint32_t correlation, std::uint64_t begin, std::uint64_t end,
              std::string_view name = kAllReduceKernel, std::uint32_t tid = 100, std::uint32_t stream = 20) {
    gpu_.Add(Api{.name = "cuLaunchKernelEx", .begin = at, .end = at + 2, .correlation = correlation, .tid = tid});
    gpu_.Add(Kernel{.name = name, .begin = begin, .end = end, .correlation = correlation, .stream = stream});
  }
  schema::RankTables Run() { return Tables(GpuProcess(gpu_, &nccl_)); }
  std::int64_t KernelBegin(const schema::RankTables& t, std::uint32_t kernel) {
    return kernel < t.kernels.rows() ? t.kernels.begin_ns[kernel] : -1;
  }
  GpuThread gpu_;
  NcclThread nccl_;
};

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

// Graphs: nothing ran when it was captured; replays are told only where there are proxies.
TEST_F(DecodeNcclTest, CapturedOperationsAreNoRowsAndReplaysAre) {
  nccl_.Add(Begin{.event = NcclEvent::kGroupApi, .id = 1, .ticks = 90, .captured = true});
  nccl_.Add(Begin{.event = NcclEvent::kCollectiveApi,
                  .id = 2,
                  .ticks = 95,
                  .parent = 1,
                  .kind = CollectiveKind::kAllReduce,
                  .count = 10,
                  .captured = true});
  nccl_.Add(Begin{.event = NcclEvent::kKernelLaunch, .id = 3, .ticks = 100, .parent = 1});
  nccl_.End(NcclEvent::kKernelLaunch, 3, 110);
  nccl_.Add(Call{.name = "ncclAllReduce", .begin = 89, .end = 120, .kind = CollectiveKind::kAllReduce, .count = 10});
  gpu_.Add(Api{.name = "cuLaunchKernelEx", .begin = 105, .end = 106, .correlation = 50});
  gpu_.Add(Kernel{.name = kAllReduceKernel, .begin = 1000, .end = 1100, .correlation = 60, .graph_node = 5});
  gpu_.Add(Kernel{.name = kAllReduceKernel, .begin = 2000, .end = 2100, .correlation = 61, .graph_node = 5});
  {
    const schema::RankTables t = Run();
    EXPECT_EQ(t.collectives.rows(), 0u);
    EXPECT_EQ(LossCount(t, "NcclUntied"), 0u);
    EXPECT_EQ(LossCount(t, "NcclKernelUntied"), 2u);
    EXPECT_EQ(t.kernels.work, (std::vector<std::uint8_t>{1, 1}));
  }
  NcclThread callback;
  for (std::uint64_t i = 0; i < 2; ++i)
    callback.Add(Begin{.event = NcclEvent::kCollective,
                       .id = 10 + i,
                       .ticks = 990 + 1000 * i,
                       .parent = 2,
                       .kind = CollectiveKind::kAllReduce,
                       .count = 10,
                       .seq = 4});
  SpoolBuilder spool = GpuProcess(gpu_, &nccl_);
  spool.Thread(3, 333).Records(callback.records, 3);
  const schema::RankTables t = Tables(spool);
  ASSERT_EQ(t.collectives.rows(), 2u);
  EXPECT_EQ(t.collectives.seq, (std::vector<std::uint64_t>{4, 4}));
  EXPECT_EQ(t.collectives.start, (std::vector<std::uint32_t>{1, 2})) << "one key each";
  EXPECT_EQ(t.collectives.kernel[0], kNone);
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
}  // namespace lockstep
