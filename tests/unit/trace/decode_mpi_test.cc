// Calls, operations and the pairing of posts with completions.

#include <algorithm>

#include "decode_fixture.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
using schema::kNoTime;
class DecodeMpi : public DecodeTest {};

TEST_F(DecodeMpi, BlockingCollective) {
  const auto t =
      TablesOf(ThreadRecords()
                   .World(0, 77, 4, 2)
                   .Mpi({.op = MpiOp::kAllreduce, .begin = 100, .end = 150, .bytes = 4096, .count = 1024, .seq = 9}));
  ASSERT_EQ(t.mpi_calls.rows(), 1u);
  ASSERT_EQ(t.collectives.rows(), 1u);
  const auto row = t.collectives.Get(0);
  EXPECT_EQ(row.begin_ns, 100);
  EXPECT_EQ(row.post_end_ns, 150);
  EXPECT_EQ(row.wait_begin_ns, 100);
  EXPECT_EQ(row.end_ns, 150);
  EXPECT_EQ(row.last_incomplete_ns, kNoTime);
  EXPECT_EQ(row.seq, 9u);
  EXPECT_EQ(row.start, 0u);
  EXPECT_EQ(row.bytes, 4096u);
  EXPECT_EQ(row.count, 1024u);
  EXPECT_EQ(row.kind, static_cast<std::uint8_t>(CollectiveKind::kAllReduce));
  EXPECT_EQ(row.mode, 0);
  EXPECT_EQ(row.root, -1);
  EXPECT_EQ(row.call, 0u);
  EXPECT_EQ(row.kernel, kNone);
  EXPECT_EQ(row.algorithm, kNone);
  EXPECT_EQ(row.protocol, kNone);
  EXPECT_EQ(row.enqueue_begin_ns, kNoTime);
  ASSERT_EQ(t.comms.rows(), 1u);
  EXPECT_EQ(t.comms.global_id[row.comm], 77u);
  EXPECT_EQ(t.comms.size[row.comm], 4u);
  EXPECT_EQ(t.comms.end_ns[row.comm], kNoTime);
  EXPECT_EQ(t.losses.rows(), 0u);
}

// Whose time explains the rank's, where nothing marks steps.
TEST_F(DecodeMpi, TheThreadThatCommunicatesWhileMainSleepsTrains) {
  constexpr std::int64_t kPeriod = 1'000'000;
  // `main_calls` and `calls`: barriers of main and of two others; `cpu_ns`: of main in each of ten periods.
  const auto training = [&](int main_calls, std::vector<int> calls, std::int64_t cpu_ns, int marks = 0) {
    SpoolBuilder spool;
    spool.Meta().Process();
    calls.insert(calls.begin(), main_calls);
    for (std::uint32_t ring = 0; ring < calls.size(); ++ring) {
      ThreadRecords records;
      if (ring == 0) {
        records.World(0, 77, 2, 0).Mpi({.op = MpiOp::kInit_thread, .begin = 10, .end = 20});
        for (int i = 0; i < marks; ++i) records.Step(i, static_cast<std::uint64_t>(kPeriod + i), -1);
      }
      for (int i = 0; i < calls[ring]; ++i) {
        const auto begin = static_cast<std::uint64_t>(100 + i * 10 * kPeriod / calls[ring]);
        records.Mpi({.op = MpiOp::kBarrier, .begin = begin, .end = begin + 50, .seq = static_cast<std::uint32_t>(i)});
      }
      spool.Thread(ring, 100 + ring).Records(records, ring);
    }
    std::vector<SpoolCpu> rows;
    for (int i = 0; i <= 10; ++i) rows.push_back({static_cast<std::uint64_t>(i * kPeriod), i * cpu_ns, 0, 0, 1});
    spool.Block(SpoolKind::kCpu, rows.data(), rows.size() * sizeof(SpoolCpu)).End(20 * kPeriod);
    const auto t = Tables(spool);
    return std::find(t.threads.training.begin(), t.threads.training.end(), 1) - t.threads.training.begin();
  };
  EXPECT_EQ(training(0, {100}, 0), 1);
  EXPECT_EQ(training(1, {40, 100}, kPeriod / 20), 2) << "it broadcast the settings";
  // Main computes, and a helper carries its communication.
  EXPECT_EQ(training(0, {100}, kPeriod / 2), 0);
  // One of several that communicate.
  EXPECT_EQ(training(100, {100, 120}, 0), 0);
  EXPECT_EQ(training(0, {100}, 0, 3), 0) << "it marks steps";
  EXPECT_EQ(training(0, {0}, 0), 0);
}

// An error may be returned at once, so that a member of such a collective need not have waited for anybody.
TEST_F(DecodeMpi, FailedCollectivesSayNothingOfOtherRanks) {
  const auto t = TablesOf(
      ThreadRecords()
          .World(0, 77, 2, 0)
          .Mpi({.op = MpiOp::kBarrier, .begin = 10, .end = 15, .seq = 0})
          .Mpi({.op = MpiOp::kBcast, .begin = 20, .end = 25, .bytes = 8, .peer = 0, .seq = 1, .flags = kMpiError})
          .Mpi({.op = MpiOp::kIallreduce, .begin = 30, .end = 35, .request = 0x5000, .bytes = 8, .seq = 2})
          .Mpi({.op = MpiOp::kWait, .begin = 40, .end = 45})
          .Completion(0x5000, kCompletionError));
  EXPECT_EQ(t.collectives.uneven, (std::vector<std::uint8_t>{0, 7, 7}));
}

TEST_F(DecodeMpi, NonBlockingFromPostOverPollsToWait) {
  const auto t = TablesOf(ThreadRecords()
                              .World(0, 77, 2, 0)
                              .Mpi({.op = MpiOp::kIallreduce, .begin = 100, .end = 110, .request = 0x5000, .seq = 1})
                              .Poll(MpiOp::kTest, 0x5000, 120, 180, 7)
                              .Poll(MpiOp::kTest, 0x9999, 190, 195, 1)  // Somebody else's.
                              .Wait(200, 240, {0x5000}));
  ASSERT_EQ(t.collectives.rows(), 1u);
  const auto row = t.collectives.Get(0);
  EXPECT_EQ(row.mode, 1);
  EXPECT_EQ(row.begin_ns, 100);
  EXPECT_EQ(row.post_end_ns, 110);
  EXPECT_EQ(row.last_incomplete_ns, 180);
  EXPECT_EQ(row.wait_begin_ns, 200);
  EXPECT_EQ(row.end_ns, 240);
  ASSERT_EQ(t.mpi_calls.rows(), 3u);  // Polls in a row are one call.
  EXPECT_EQ(t.mpi_calls.count[1], 8u);
  EXPECT_EQ(t.mpi_calls.outcome[1], 1);
  EXPECT_EQ(t.mpi_calls.duration_ns[1], 75);
}

// Open MPI gives every eager Isend the same handle.
TEST_F(DecodeMpi, EqualHandlesArePairedOldestFirst) {
  ThreadRecords r;
  r.World(0, 77, 2, 0);
  for (std::uint64_t i = 0; i < 3; ++i)
    r.Mpi({.op = MpiOp::kIsend,
           .begin = 100 + i * 10,
           .end = 105 + i * 10,
           .request = 0x1,
           .bytes = 10 + i,
           .peer = 1,
           .tag = 5});
  r.Wait(200, 210, {0x1}).Wait(300, 310, {0x1, 0x1});
  const auto t = TablesOf(r);
  ASSERT_EQ(t.p2p.rows(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(t.p2p.bytes[i], 10 + i);
    EXPECT_EQ(t.p2p.end_ns[i], i == 0 ? 210 : 310);
    EXPECT_EQ(t.p2p.seq[i], i);
    EXPECT_EQ(t.p2p.outcome[i], 0);
    EXPECT_EQ(t.p2p.mode[i], 1);
    EXPECT_EQ(t.p2p.peer_world_rank[i], 1);
  }
  EXPECT_EQ(LossCount(t, "RequestUnknown"), 0u);
}

// A handle posted by one thread, completed by another, reused at once by the first.
TEST_F(DecodeMpi, CompletionByAnotherThread) {
  ThreadRecords a, b;
  a.World(0, 77, 2, 0)
      .Mpi({.op = MpiOp::kIsend, .begin = 100, .end = 110, .request = 0x8, .bytes = 1, .peer = 1, .tag = 0})
      .Mpi({.op = MpiOp::kIsend, .begin = 205, .end = 206, .request = 0x8, .bytes = 2, .peer = 1, .tag = 0});
  b.Wait(150, 220, {0x8}).Wait(230, 240, {0x8});
  const auto t = Tables(SpoolBuilder().Meta().Process().Thread(0, 100).Thread(1, 101).Records(b, 1).Records(a, 0));
  ASSERT_EQ(t.p2p.rows(), 2u);
  EXPECT_EQ(t.p2p.end_ns[0], 220);
  EXPECT_EQ(t.p2p.end_ns[1], 240);
  EXPECT_EQ(t.p2p.bytes[0], 1u);
  EXPECT_EQ(t.threads.rows(), 2u);
}

TEST_F(DecodeMpi, WildcardsComeFromTheStatus) {
  const auto t = TablesOf(
      ThreadRecords()
          .World(0, 77, 4, 0)
          .Mpi({.op = MpiOp::kIrecv, .begin = 10, .end = 11, .request = 0xa, .bytes = 64, .peer = -2, .tag = -2})
          .Mpi({.op = MpiOp::kIrecv, .begin = 20, .end = 21, .request = 0xb, .bytes = 64, .peer = 3, .tag = 7})
          .Mpi({.op = MpiOp::kRecv, .begin = 30, .end = 40, .bytes = 64, .peer = -2, .tag = 7})
          .Completion(0, kCompletionStatus, 3, 7, 16)
          .Mpi({.op = MpiOp::kWaitall, .begin = 50, .end = 60, .bytes = 2, .comm = kNoComm})
          .Completion(0xb, kCompletionStatus, 3, 7, 24)
          .Completion(0xa, kCompletionStatus, 3, 7, 32));
  ASSERT_EQ(t.p2p.rows(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {  // Matching follows the order of posting, not of completion.
    EXPECT_EQ(t.p2p.peer[i], 3);
    EXPECT_EQ(t.p2p.tag[i], 7);
    EXPECT_EQ(t.p2p.seq[i], i);
    EXPECT_EQ(t.p2p.direction[i], 1);
    EXPECT_EQ(t.p2p.peer_world_rank[i], 3);
  }
  EXPECT_EQ(t.p2p.bytes[0], 32u);
  EXPECT_EQ(t.p2p.bytes[1], 24u);
  EXPECT_EQ(t.p2p.bytes[2], 16u);
  EXPECT_EQ(t.mpi_calls.peer[0], -2);
}

TEST_F(DecodeMpi, AReceiveWaitsFromTheProbeBeforeIt) {
  ThreadRecords a, b;
  a.World(0, 77, 4, 0)
      .Mpi({.op = MpiOp::kProbe, .begin = 10, .end = 500, .peer = 1, .tag = 7})
      .Mpi({.op = MpiOp::kRecv, .begin = 600, .end = 620, .bytes = 64, .peer = 1, .tag = 7})
      // Work in between, another call in between: the probe's wait is not the receive's.
      .Mpi({.op = MpiOp::kProbe, .begin = 700, .end = 800, .peer = 1, .tag = 8})
      .Mpi({.op = MpiOp::kRecv, .begin = 200'800, .end = 200'900, .bytes = 64, .peer = 1, .tag = 8})
      .Mpi({.op = MpiOp::kProbe, .begin = 300'000, .end = 300'100, .peer = 1, .tag = 9})
      .Mpi({.op = MpiOp::kBarrier, .begin = 300'200, .end = 300'300, .seq = 0})
      .Mpi({.op = MpiOp::kRecv, .begin = 300'400, .end = 300'500, .bytes = 64, .peer = 1, .tag = 9})
      // Another message is received first; then one that was probed from anybody.
      .Mpi({.op = MpiOp::kProbe, .begin = 400'000, .end = 400'100, .peer = 2, .tag = 3})
      .Mpi({.op = MpiOp::kRecv, .begin = 400'200, .end = 400'300, .bytes = 64, .peer = 1, .tag = 3})
      .Mpi({.op = MpiOp::kProbe, .begin = 500'000, .end = 500'100, .peer = -2, .tag = -2})
      .Mpi({.op = MpiOp::kRecv, .begin = 500'200, .end = 500'300, .bytes = 64, .peer = 2, .tag = 3});
  // Posted before that receive: its message is an earlier one.
  b.Mpi({.op = MpiOp::kIrecv, .begin = 550, .end = 560, .request = 0xa, .bytes = 64, .peer = 1, .tag = 7});
  const auto t = Tables(SpoolBuilder().Meta().Process().Thread(0, 100).Thread(1, 101).Records(a, 0).Records(b, 1));
  EXPECT_EQ(t.p2p.begin_ns, (std::vector<std::int64_t>{10, 550, 200'800, 300'400, 400'200, 500'000}));
  EXPECT_EQ(t.p2p.wait_begin_ns, (std::vector<std::int64_t>{10, schema::kNoTime, 200'800, 300'400, 400'200, 500'000}));
  EXPECT_EQ(t.p2p.end_ns[0], 620);
  EXPECT_EQ(t.p2p.seq, (std::vector<std::uint64_t>{1, 0, 0, 0, 0, 0}));
}

// A loop of MPI_Test or MPI_Iprobe waits as MPI_Wait and MPI_Probe do.
TEST_F(DecodeMpi, PollsInARowAreAWait) {
  const auto irecv = [](ThreadRecords& a, std::uint64_t request, std::uint64_t at, std::int32_t tag) {
    a.Mpi({.op = MpiOp::kIrecv, .begin = at, .end = at + 10, .request = request, .bytes = 64, .peer = 1, .tag = tag});
  };
  const auto test = [](ThreadRecords& a, std::uint64_t request, std::uint64_t at) {
    a.Mpi({.op = MpiOp::kTest, .begin = at, .end = at + 10, .request = request, .bytes = 1, .comm = kNoComm});
  };
  ThreadRecords a;
  a.World(0, 77, 4, 0);
  irecv(a, 0xa, 0, 1);
  a.Poll(MpiOp::kTest, 0xa, 100, 50'000, 400);
  test(a, 0xa, 50'100);
  // Two requests by turns.
  irecv(a, 0xb, 100'000, 2);
  irecv(a, 0xc, 100'020, 3);
  a.Poll(MpiOp::kTest, 0xb, 100'100, 100'110, 1).Poll(MpiOp::kTest, 0xc, 100'200, 100'210, 1);
  a.Poll(MpiOp::kTest, 0xb, 110'000, 110'010, 1);
  test(a, 0xc, 120'000);
  // Another one was asked for; work in between.
  irecv(a, 0xd, 200'000, 4);
  a.Poll(MpiOp::kTest, 0xb, 200'100, 210'000, 9);
  test(a, 0xd, 210'100);
  irecv(a, 0xe, 300'000, 5);
  a.Poll(MpiOp::kTest, 0xe, 300'100, 310'000, 9);
  test(a, 0xe, 400'000);
  a.Poll(MpiOp::kIprobe, 0, 500'000, 510'000, 9);
  // Without a core for 3 us more than polls may be apart, of 540.
  a.Poll(MpiOp::kIprobe, 0, 510'020, 1'010'000, 900).Poll(MpiOp::kIprobe, 0, 1'033'000, 1'040'000, 9);
  a.Mpi({.op = MpiOp::kIprobe, .begin = 1'040'100, .end = 1'040'200, .peer = -2, .tag = -2})
      .Mpi({.op = MpiOp::kRecv, .begin = 1'040'300, .end = 1'040'400, .bytes = 64, .peer = 1, .tag = 9});
  // Messages and a request by turns: what is found first is waited for since both were; each was seen at its own time.
  irecv(a, 0xf, 2'000'000, 6);
  a.Poll(MpiOp::kIprobe, 0, 2'000'100, 2'005'000, 90).Poll(MpiOp::kTest, 0, 2'005'000, 2'010'000, 90);
  a.Completion(0xf, kCompletionPending, -1, -1, 2'009'000);
  test(a, 0xf, 2'010'100);
  // Only messages were asked for.
  irecv(a, 0xf, 3'000'000, 7);
  a.Poll(MpiOp::kIprobe, 0, 3'000'100, 3'005'000, 90);
  test(a, 0xf, 3'005'100);
  // Too many requests to be told apart.
  irecv(a, 0xf, 4'000'000, 8);
  a.Poll(MpiOp::kTest, 0, 4'000'100, 4'010'000, 90, kPollUntold).Completion(0xe, kCompletionPending);
  test(a, 0xf, 4'010'100);
  const auto t = Tables(SpoolBuilder().Meta().Process().Thread(0, 100).Records(a, 0));
  EXPECT_EQ(t.p2p.wait_begin_ns, (std::vector<std::int64_t>{100, schema::kNoTime, 100'100, 210'100, 400'000, 500'000,
                                                            2'000'100, 3'005'100, 4'000'100}));
  EXPECT_EQ(t.p2p.last_incomplete_ns[0], 50'000);
  EXPECT_EQ(t.p2p.last_incomplete_ns[6], 2'009'000);
  EXPECT_EQ(t.p2p.begin_ns[5], 500'000);
}

// MPI_Finalize is a collective of the world where the probe gave it a number.
TEST_F(DecodeMpi, FinalizeWaitsForAll) {
  const auto t = TablesOf(ThreadRecords()
                              .World(0, 77, 4, 0)
                              .Mpi({.op = MpiOp::kBarrier, .begin = 10, .end = 20, .seq = 0})
                              .Mpi({.op = MpiOp::kFinalize, .begin = 30, .end = 90, .seq = 1}));
  ASSERT_EQ(t.collectives.rows(), 2u);
  EXPECT_EQ(t.collectives.kind[1], static_cast<std::uint8_t>(CollectiveKind::kFinalize));
  EXPECT_EQ(t.collectives.seq[1], 1u);
  EXPECT_EQ(t.collectives.begin_ns[1], 30);
  EXPECT_EQ(t.collectives.end_ns[1], 90);
  const auto old = TablesOf(
      ThreadRecords().World(0, 77, 4, 0).Mpi({.op = MpiOp::kFinalize, .begin = 30, .end = 90, .comm = kNoComm}));
  EXPECT_EQ(old.collectives.rows(), 0u);
}

// A fence is a collective of its window where the probe gave it a number.
TEST_F(DecodeMpi, FencesOfAWindow) {
  const auto t = TablesOf(ThreadRecords()
                              .World(0, 77, 4, 0)
                              .Mpi({.op = MpiOp::kWin_fence, .begin = 10, .end = 20, .seq = 0})
                              .Mpi({.op = MpiOp::kWin_fence, .begin = 30, .end = 90, .count = 1, .seq = 1}));
  ASSERT_EQ(t.collectives.rows(), 1u);
  EXPECT_EQ(t.collectives.kind[0], static_cast<std::uint8_t>(CollectiveKind::kFence));
  EXPECT_EQ(t.collectives.seq[0], 1u);
  EXPECT_EQ(t.collectives.call[0], 1u);
  EXPECT_EQ(t.mpi_calls.rows(), 2u);
}

// More polls than a row counts are two rows.
TEST_F(DecodeMpi, RunsOfPollsEndWhereTheirCountDoes) {
  const auto t = TablesOf(ThreadRecords()
                              .World(0, 77, 2, 0)
                              .Poll(MpiOp::kTest, 0xa, 100, 200, 4'000'000'000)
                              .Poll(MpiOp::kTest, 0xa, 300, 400, 294'967'295)
                              .Poll(MpiOp::kTest, 0xa, 500, 600, 1));
  EXPECT_EQ(t.mpi_calls.count, (std::vector<std::uint32_t>{4'294'967'295, 1}));
}

TEST_F(DecodeMpi, SendrecvGivesTwoRowsOfOneCall) {
  const auto t = TablesOf(ThreadRecords()
                              .World(0, 77, 4, 0)
                              .Mpi({.op = MpiOp::kSendrecv, .begin = 10, .end = 20, .bytes = 100, .peer = 1, .tag = 2})
                              .Completion(0, kCompletionStatus, 3, 4, 50));
  ASSERT_EQ(t.mpi_calls.rows(), 1u);
  ASSERT_EQ(t.p2p.rows(), 2u);
  EXPECT_EQ(t.p2p.direction, (std::vector<std::uint8_t>{0, 1}));
  EXPECT_EQ(t.p2p.peer, (std::vector<std::int32_t>{1, 3}));
  EXPECT_EQ(t.p2p.tag, (std::vector<std::int32_t>{2, 4}));
  EXPECT_EQ(t.p2p.bytes, (std::vector<std::uint64_t>{100, 50}));
  EXPECT_EQ(t.p2p.call, (std::vector<std::uint32_t>{0, 0}));
  EXPECT_EQ(t.p2p.kernel, (std::vector<std::uint32_t>{kNone, kNone}));
}

TEST_F(DecodeMpi, ProcNullIsNoMessageButItsRequestIsKnown) {
  const auto t = TablesOf(ThreadRecords()
                              .World(0, 77, 4, 0)
                              .Mpi({.op = MpiOp::kSend, .begin = 1, .end = 2, .peer = -1})
                              .Mpi({.op = MpiOp::kIrecv, .begin = 3, .end = 4, .request = 0xc, .peer = -1})
                              .Wait(5, 6, {0xc}));
  EXPECT_EQ(t.p2p.rows(), 0u);
  EXPECT_EQ(t.mpi_calls.rows(), 3u);
  EXPECT_EQ(t.losses.rows(), 0u);
}

TEST_F(DecodeMpi, PersistentStarts) {
  const auto t = TablesOf(
      ThreadRecords()
          .World(0, 77, 2, 0)
          .Mpi({.op = MpiOp::kAllreduce_init,
                .begin = 1,
                .end = 2,
                .request = 0xd0,
                .bytes = 8,
                .seq = 4,
                .flags = kMpiUnrecorded})
          .Mpi({.op = MpiOp::kSend_init, .begin = 3, .end = 4, .request = 0xd1, .bytes = 16, .peer = 1, .tag = 9})
          // While recording was off: counts, no row.
          .Mpi({.op = MpiOp::kStart, .begin = 5, .end = 6, .comm = kNoComm, .flags = kMpiUnrecorded})
          .Completion(0xd0, kCompletionStarted)
          .Mpi({.op = MpiOp::kStartall, .begin = 10, .end = 12, .bytes = 2, .comm = kNoComm})
          .Completion(0xd0, kCompletionStarted)
          .Completion(0xd1, kCompletionStarted)
          .Wait(20, 30, {0xd0, 0xd1})
          .Wait(31, 32, {0xd0})  // Inactive: completes nothing, and is no unknown request.
          .Mpi({.op = MpiOp::kStart, .begin = 40, .end = 41, .comm = kNoComm})
          .Completion(0xd0, kCompletionStarted, -1, -1, 3)
          .Wait(50, 60, {0xd0})
          .Mpi({.op = MpiOp::kRequest_free, .begin = 61, .end = 62, .request = 0xd0, .comm = kNoComm}));
  ASSERT_EQ(t.collectives.rows(), 2u);
  EXPECT_EQ(t.collectives.seq, (std::vector<std::uint64_t>{4, 4}));
  EXPECT_EQ(t.collectives.start, (std::vector<std::uint32_t>{2, 3}));
  EXPECT_EQ(t.collectives.mode, (std::vector<std::uint8_t>{2, 2}));
  EXPECT_EQ(t.collectives.begin_ns, (std::vector<std::int64_t>{10, 40}));
  EXPECT_EQ(t.collectives.end_ns, (std::vector<std::int64_t>{30, 60}));
  ASSERT_EQ(t.p2p.rows(), 1u);
  EXPECT_EQ(t.p2p.mode[0], 2);
  EXPECT_EQ(t.p2p.bytes[0], 16u);
  EXPECT_EQ(t.p2p.end_ns[0], 30);
  EXPECT_EQ(t.losses.rows(), 0u);
  // The two unrecorded calls have no rows.
  EXPECT_EQ(t.mpi_calls.rows(), 7u);
}

TEST_F(DecodeMpi, PersistentHandleOfAnotherThreadIsUsedAgain) {
  // The second thread's init began before the first freed the handle that it then got.
  const auto init = [](std::uint64_t begin, std::uint64_t end, std::uint64_t bytes) {
    return ThreadRecords::Call{
        .op = MpiOp::kSend_init, .begin = begin, .end = end, .request = 0xd0, .bytes = bytes, .peer = 1, .tag = 9};
  };
  const auto t = Tables(
      SpoolBuilder()
          .Meta()
          .Process()
          .Thread(0, 100)
          .Thread(1, 101)
          .Records(ThreadRecords()
                       .World(0, 77, 2, 0)
                       .Mpi(init(5, 6, 16))
                       .Mpi({.op = MpiOp::kStart, .begin = 12, .end = 13, .comm = kNoComm})
                       .Completion(0xd0, kCompletionStarted)
                       .Wait(14, 16, {0xd0})
                       .Mpi({.op = MpiOp::kRequest_free, .begin = 20, .end = 22, .request = 0xd0, .comm = kNoComm}))
          .Records(ThreadRecords()
                       .Mpi(init(10, 30, 32))
                       .Mpi({.op = MpiOp::kStart, .begin = 32, .end = 33, .comm = kNoComm})
                       .Completion(0xd0, kCompletionStarted)
                       .Wait(34, 36, {0xd0})
                       .Mpi({.op = MpiOp::kRequest_free, .begin = 40, .end = 41, .request = 0xd0, .comm = kNoComm}),
                   1)
          .End(1000));
  EXPECT_EQ(t.p2p.bytes, (std::vector<std::uint64_t>{16, 32}));
  EXPECT_EQ(t.p2p.end_ns, (std::vector<std::int64_t>{16, 36}));
  EXPECT_EQ(t.losses.rows(), 0u);
}

// Each operation of the second thread began before the first thread gave back the handle that it then got.
TEST_F(DecodeMpi, HandleOfAnotherThreadIsUsedAgain) {
  const auto t = Tables(
      SpoolBuilder()
          .Meta()
          .Process()
          .Thread(0, 100)
          .Thread(1, 101)
          .Records(
              ThreadRecords()
                  .World(0, 77, 2, 0)
                  .Mpi({.op = MpiOp::kIsend, .begin = 10, .end = 11, .request = 8, .bytes = 1, .peer = 1, .tag = 0})
                  .Wait(20, 30, {8})
                  .Mpi({.op = MpiOp::kSend_init, .begin = 50, .end = 51, .request = 8, .bytes = 3, .peer = 1, .tag = 0})
                  .Mpi({.op = MpiOp::kRequest_free, .begin = 60, .end = 70, .request = 8, .comm = kNoComm}))
          .Records(
              ThreadRecords()
                  .Mpi({.op = MpiOp::kIsend, .begin = 5, .end = 35, .request = 8, .bytes = 2, .peer = 1, .tag = 0})
                  .Wait(40, 45, {8})
                  .Mpi({.op = MpiOp::kIsend, .begin = 55, .end = 75, .request = 8, .bytes = 4, .peer = 1, .tag = 0})
                  .Wait(80, 85, {8}),
              1)
          .End(1000));
  EXPECT_EQ(t.p2p.bytes, (std::vector<std::uint64_t>{2, 1, 4}));
  EXPECT_EQ(t.p2p.end_ns, (std::vector<std::int64_t>{45, 30, 85}));
  EXPECT_EQ(t.p2p.outcome, (std::vector<std::uint8_t>{0, 0, 0}));
  EXPECT_EQ(t.losses.rows(), 0u);
}

TEST_F(DecodeMpi, PollsOfSeveralHandlesBoundOnlyThoseTheyName) {
  const auto t = TablesOf(ThreadRecords()
                              .World(0, 77, 2, 0)
                              .Mpi({.op = MpiOp::kIallreduce, .begin = 10, .end = 11, .request = 0xe0, .seq = 0})
                              .Mpi({.op = MpiOp::kIallreduce, .begin = 12, .end = 13, .request = 0xe1, .seq = 1})
                              .Mpi({.op = MpiOp::kIallreduce, .begin = 14, .end = 15, .request = 0xe2, .seq = 2})
                              .Poll(MpiOp::kTestany, 0, 20, 30, 3)
                              .Completion(0xe0, kCompletionPending)
                              .Completion(0xe1, kCompletionPending)
                              .Poll(MpiOp::kTestall, 0, 35, 40, 1)
                              .Mpi({.op = MpiOp::kTestsome, .begin = 50, .end = 55, .bytes = 2, .comm = kNoComm})
                              .Completion(0xe0)
                              .Completion(0xe1, kCompletionPending)
                              .Wait(60, 70, {0xe1, 0xe2}));
  ASSERT_EQ(t.collectives.rows(), 3u);
  EXPECT_EQ(t.collectives.last_incomplete_ns, (std::vector<std::int64_t>{30, 55, kNoTime}));
  EXPECT_EQ(t.collectives.end_ns, (std::vector<std::int64_t>{55, 70, 70}));
}

TEST_F(DecodeMpi, OneRequestForASendAndAReceive) {
  const auto t = TablesOf(
      ThreadRecords()
          .World(0, 77, 4, 0)
          .Mpi({.op = MpiOp::kIsendrecv, .begin = 10, .end = 20, .request = 8, .bytes = 64, .peer = 1, .tag = 5})
          .Completion(0, kCompletionPending | kCompletionStatus, -2, -2, 999)
          .Mpi({.op = MpiOp::kIrecv, .begin = 22, .end = 23, .request = 9, .bytes = 9, .peer = 2, .tag = 6})
          .Poll(MpiOp::kTest, 8, 25, 30, 3)
          .Mpi({.op = MpiOp::kWaitall, .begin = 40, .end = 50, .bytes = 2, .comm = kNoComm})
          .Completion(8, kCompletionStatus, 2, 6, 16)
          .Completion(9, kCompletionStatus, 2, 6, 9)
          // To and from nobody.
          .Mpi({.op = MpiOp::kIsendrecv_replace, .begin = 60, .end = 61, .request = 8, .peer = -1, .tag = 5})
          .Completion(0, kCompletionPending, 3, 7, 4)
          .Wait(70, 80, {8})
          .Mpi({.op = MpiOp::kIsendrecv, .begin = 90, .end = 91, .request = 8, .peer = -1, .tag = 5})
          .Completion(0, kCompletionPending, -1, 7, 4)
          .Wait(95, 96, {8}));
  ASSERT_EQ(t.p2p.rows(), 4u);
  EXPECT_EQ(t.p2p.direction, (std::vector<std::uint8_t>{0, 1, 1, 1}));
  EXPECT_EQ(t.p2p.peer, (std::vector<std::int32_t>{1, 2, 2, 3}));
  EXPECT_EQ(t.p2p.tag, (std::vector<std::int32_t>{5, 6, 6, 7}));
  EXPECT_EQ(t.p2p.seq, (std::vector<std::uint64_t>{0, 0, 1, 0}));  // Both receives take rank 2's, in order of posting.
  EXPECT_EQ(t.p2p.bytes, (std::vector<std::uint64_t>{64, 16, 9, 4}));
  EXPECT_EQ(t.p2p.last_incomplete_ns, (std::vector<std::int64_t>{30, 30, kNoTime, kNoTime}));
  EXPECT_EQ(t.p2p.wait_begin_ns, (std::vector<std::int64_t>{25, 25, 40, 70}));
  EXPECT_EQ(t.p2p.end_ns, (std::vector<std::int64_t>{50, 50, 50, 80}));
  EXPECT_EQ(t.p2p.outcome, (std::vector<std::uint8_t>{0, 0, 0, 0}));
  EXPECT_EQ(LossCount(t, "RequestUnknown") + LossCount(t, "RequestNeverCompleted"), 0u);
}

// MPICH's status of such a request says anything.
TEST_F(DecodeMpi, WhatTheStatusOfASendAndAReceiveDoesNotTell) {
  const auto t = TablesOf(
      ThreadRecords()
          .World(0, 77, 4, 0)
          .Mpi({.op = MpiOp::kIsendrecv, .begin = 10, .end = 20, .request = 8, .bytes = 64, .peer = 1, .tag = 5})
          .Completion(0, kCompletionPending, 2, 6, 16)
          .Mpi({.op = MpiOp::kIsendrecv, .begin = 30, .end = 31, .request = 9, .bytes = 64, .peer = 1, .tag = 5})
          .Completion(0, kCompletionPending, -2, 6, 32)
          .Mpi({.op = MpiOp::kWaitall, .begin = 40, .end = 50, .bytes = 2, .comm = kNoComm})
          .Completion(8, kCompletionStatus, 3, 77, 123456)
          .Completion(9, kCompletionStatus, 3, 77, 123456));
  EXPECT_EQ(t.p2p.direction, (std::vector<std::uint8_t>{0, 1, 0, 1}));
  EXPECT_EQ(t.p2p.peer, (std::vector<std::int32_t>{1, 2, 1, -1}));
  EXPECT_EQ(t.p2p.tag, (std::vector<std::int32_t>{5, 6, 5, 6}));
  EXPECT_EQ(t.p2p.bytes, (std::vector<std::uint64_t>{64, 16, 64, 32}));
  EXPECT_EQ(t.p2p.end_ns, (std::vector<std::int64_t>{50, 50, 50, 50}));
}

TEST_F(DecodeMpi, BothHalvesOfARequestThatWasNeverCompletedOrFreed) {
  ThreadRecords r;
  r.World(0, 77, 2, 0);
  for (const std::uint64_t request : {8, 9}) {
    r.Mpi({.op = MpiOp::kIsendrecv, .begin = request, .end = request, .request = request, .peer = 1, .tag = 5});
    r.Completion(0, kCompletionPending, 1, 5, 1);
  }
  r.Mpi({.op = MpiOp::kRequest_free, .begin = 30, .end = 31, .request = 9, .comm = kNoComm});
  const auto t = TablesOf(r);
  EXPECT_EQ(t.p2p.outcome, (std::vector<std::uint8_t>{3, 3, 4, 4}));
}

// Each counts among those of its communicator, partner and tag only, apart from other messages, and is there when its
// last part is.
TEST_F(DecodeMpi, PartitionedMessages) {
  constexpr std::uint64_t kFirst = schema::kPartitionedSeq, kSecond = 2 * schema::kPartitionedSeq;
  const auto t = TablesOf(
      ThreadRecords()
          .World(0, 77, 4, 0)
          .Mpi({.op = MpiOp::kPsend_init, .begin = 1, .end = 2, .request = 0xa, .bytes = 400, .peer = 1, .tag = 5})
          .Mpi({.op = MpiOp::kPrecv_init, .begin = 3, .end = 4, .request = 0xb, .bytes = 400, .peer = 1, .tag = 5})
          .Mpi({.op = MpiOp::kPsend_init, .begin = 5, .end = 6, .request = 0xc, .bytes = 80, .peer = 1, .tag = 5})
          .Mpi({.op = MpiOp::kSend, .begin = 7, .end = 8, .bytes = 3, .peer = 1, .tag = 5})
          .Mpi({.op = MpiOp::kStartall, .begin = 10, .end = 11, .bytes = 3, .comm = kNoComm})
          .Completion(0xc, kCompletionStarted)
          .Completion(0xb, kCompletionStarted)
          .Completion(0xa, kCompletionStarted)
          .Mpi({.op = MpiOp::kPready, .begin = 20, .end = 21, .request = 0xa, .comm = kNoComm})
          .Mpi({.op = MpiOp::kPready_range, .begin = 30, .end = 32, .request = 0xa, .comm = kNoComm})
          .Poll(MpiOp::kParrived, 0xb, 33, 34, 2)
          .Mpi({.op = MpiOp::kParrived, .begin = 35, .end = 36, .comm = kNoComm})
          // A library's status says nothing of the parts.
          .Mpi({.op = MpiOp::kWaitall, .begin = 40, .end = 50, .bytes = 3, .comm = kNoComm})
          .Completion(0xc, kCompletionStatus, -1, -1, 0)
          .Completion(0xb, kCompletionStatus, -1, -1, 0)
          .Completion(0xa, kCompletionStatus, -1, -1, 0)
          .Mpi({.op = MpiOp::kStart, .begin = 60, .end = 61, .bytes = 1, .comm = kNoComm})
          .Completion(0xa, kCompletionStarted)
          .Mpi({.op = MpiOp::kPready_list, .begin = 62, .end = 63, .request = 0xa, .comm = kNoComm})
          .Wait(70, 80, {0xa}));
  ASSERT_EQ(t.p2p.rows(), 5u);
  EXPECT_EQ(t.p2p.direction, (std::vector<std::uint8_t>{0, 0, 1, 0, 0}));
  EXPECT_EQ(t.p2p.seq, (std::vector<std::uint64_t>{0, kSecond, kFirst, kFirst, kFirst + 1}));
  EXPECT_EQ(t.p2p.begin_ns, (std::vector<std::int64_t>{7, 10, 10, 30, 62}));
  EXPECT_EQ(t.p2p.post_end_ns, (std::vector<std::int64_t>{8, 11, 11, 32, 63}));
  EXPECT_EQ(t.p2p.last_incomplete_ns, (std::vector<std::int64_t>{kNoTime, kNoTime, 34, kNoTime, kNoTime}));
  EXPECT_EQ(t.p2p.end_ns, (std::vector<std::int64_t>{8, 50, 50, 50, 80}));
  EXPECT_EQ(t.p2p.bytes, (std::vector<std::uint64_t>{3, 80, 400, 400, 400}));
  EXPECT_EQ(t.p2p.peer, (std::vector<std::int32_t>{1, 1, 1, 1, 1}));
  EXPECT_EQ(t.mpi_calls.op[t.p2p.call[3]], static_cast<std::uint16_t>(MpiOp::kPready_range));
  EXPECT_EQ(LossCount(t, "RequestUnknown") + LossCount(t, "RequestNeverCompleted"), 0u);
}

TEST_F(DecodeMpi, CancelledFreedFailedAndNeverCompleted) {
  const auto t = TablesOf(ThreadRecords()
                              .World(0, 77, 2, 0)
                              .Mpi({.op = MpiOp::kIrecv, .begin = 10, .end = 11, .request = 1, .peer = 1, .tag = 0})
                              .Mpi({.op = MpiOp::kIsend, .begin = 12, .end = 13, .request = 2, .peer = 1, .tag = 0})
                              .Mpi({.op = MpiOp::kIrecv, .begin = 14, .end = 15, .request = 3, .peer = 1, .tag = 0})
                              .Mpi({.op = MpiOp::kIrecv, .begin = 16, .end = 17, .request = 4, .peer = -2, .tag = -2})
                              .Mpi({.op = MpiOp::kRequest_free, .begin = 20, .end = 21, .request = 2, .comm = kNoComm})
                              .Mpi({.op = MpiOp::kWaitall, .begin = 30, .end = 40, .bytes = 2, .comm = kNoComm})
                              .Completion(1, kCompletionCancelled | kCompletionStatus, -1, -1, 0)
                              .Completion(3, kCompletionError)
                              .Wait(50, 51, {0xbad}));
  EXPECT_EQ(t.p2p.outcome, (std::vector<std::uint8_t>{1, 4, 2, 3}));
  EXPECT_EQ(t.p2p.seq[0], UINT64_MAX);  // Cancelled: matched nothing.
  EXPECT_EQ(t.p2p.seq[2], 0u);
  EXPECT_EQ(t.p2p.peer[3], -1);
  EXPECT_EQ(t.p2p.end_ns[3], kNoTime);
  EXPECT_EQ(t.p2p.end_ns[1], kNoTime);
  EXPECT_EQ(LossCount(t, "RequestNeverCompleted"), 1u);
  EXPECT_EQ(LossCount(t, "RequestUnknown"), 1u);
}

// What was refused does not shift the numbers of later messages.
TEST_F(DecodeMpi, RefusedSendsAndPostsHaveNoNumber) {
  const auto t = TablesOf(
      ThreadRecords()
          .World(0, 77, 2, 0)
          .Mpi({.op = MpiOp::kSend, .begin = 10, .end = 11, .peer = 1, .tag = 0, .flags = kMpiError})
          .Mpi({.op = MpiOp::kSend, .begin = 12, .end = 13, .peer = 1, .tag = 0})
          .Mpi({.op = MpiOp::kIrecv, .begin = 14, .end = 15, .request = 1, .peer = 1, .tag = 0, .flags = kMpiError})
          .Mpi({.op = MpiOp::kRecv, .begin = 16, .end = 17, .peer = 1, .tag = 0}));
  EXPECT_EQ(t.p2p.seq, (std::vector<std::uint64_t>{UINT64_MAX, 0, UINT64_MAX, 0}));
}

// MPI found their arguments wrong: no rank takes part in them.
TEST_F(DecodeMpi, CallsThatWereRefusedAreNoOperations) {
  const auto t = TablesOf(
      ThreadRecords()
          .World(0, 77, 2, 0)
          .Mpi({.op = MpiOp::kBcast, .begin = 10, .end = 11, .peer = 0, .seq = 0, .flags = kMpiRefused})
          .Mpi({.op = MpiOp::kIallreduce, .begin = 12, .end = 13, .request = 5, .seq = 0, .flags = kMpiRefused})
          .Mpi({.op = MpiOp::kSend, .begin = 14, .end = 15, .peer = 1, .tag = 0, .flags = kMpiRefused})
          .Mpi({.op = MpiOp::kSend_init, .begin = 16, .end = 17, .request = 6, .peer = 1, .flags = kMpiRefused})
          .Mpi({.op = MpiOp::kBcast, .begin = 18, .end = 19, .peer = 0, .seq = 0, .flags = kMpiRefused})
          .Mpi({.op = MpiOp::kBarrier, .begin = 20, .end = 30, .seq = 0}));
  EXPECT_EQ(t.mpi_calls.rows(), 6u);
  EXPECT_EQ(t.p2p.rows(), 0u);
  EXPECT_EQ(t.collectives.begin_ns, (std::vector<std::int64_t>{20}));
  EXPECT_EQ(LossCount(t, "RequestNeverCompleted"), 0u);
  std::map<std::string, std::uint64_t> failed;
  for (std::size_t i = 0; i < t.losses.rows(); ++i)
    if (TextOf(t, t.losses.name[i]) == "MpiCallFailed")
      failed[std::string(TextOf(t, t.losses.detail[i]))] = t.losses.count[i];
  EXPECT_EQ(failed, (std::map<std::string, std::uint64_t>{
                        {"MPI_Bcast", 2}, {"MPI_Iallreduce", 1}, {"MPI_Send", 1}, {"MPI_Send_init", 1}}));
}

// Their number is in the root's record.
TEST_F(DecodeMpi, SpawnedProcessesAreALoss) {
  const auto t = TablesOf(ThreadRecords()
                              .World(0, 77, 2, 0)
                              .Mpi({.op = MpiOp::kComm_spawn, .begin = 10, .end = 11, .bytes = 3})
                              .Mpi({.op = MpiOp::kComm_spawn_multiple, .begin = 12, .end = 13, .bytes = 2})
                              .Mpi({.op = MpiOp::kComm_spawn, .begin = 14, .end = 15}));
  EXPECT_EQ(LossCount(t, "SpawnedUnrecorded"), 5u);
}

// A lost Wait must not shift all later pairs of a reused handle by one.
TEST_F(DecodeMpi, GapForgetsWhatItMayHaveSwallowed) {
  const auto t = TablesOf(ThreadRecords()
                              .World(0, 77, 2, 0)
                              .Mpi({.op = MpiOp::kIsend, .begin = 10, .end = 11, .request = 1, .peer = 1, .tag = 0})
                              .Gap(12, 90, 5)
                              .Mpi({.op = MpiOp::kIsend, .begin = 100, .end = 101, .request = 1, .peer = 1, .tag = 0})
                              .Wait(110, 120, {1}));
  ASSERT_EQ(t.p2p.rows(), 2u);
  EXPECT_EQ(t.p2p.outcome, (std::vector<std::uint8_t>{3, 0}));
  EXPECT_EQ(t.p2p.end_ns[1], 120);
  EXPECT_EQ(LossCount(t, "RingFull"), 5u);
  EXPECT_EQ(t.losses.first_ns[0], 12);
  EXPECT_EQ(t.losses.last_ns[0], 90);
  EXPECT_EQ(t.threads.dropped[0], 5u);
}

TEST_F(DecodeMpi, CommunicatorsNamedFreedReusedAndUnknown) {
  const std::int32_t members[8] = {4, 2, 7};
  const auto t = TablesOf(ThreadRecords()
                              .String(1, "tensor parallel")
                              .World(0, 77, 8, 2)
                              .Add(CommRecord{{RecordKind::kComm, 0, 3}, 1, 88, 77, 10, 3, 1, 0, 0, 3, 0, 0})
                              .Add(members)
                              .Add(CommRecord{{RecordKind::kComm, 0x20, 2}, 1, 0, 0, 11, 0, 0, 0, 0, 0, 1, 0})
                              .Mpi({.op = MpiOp::kSend, .begin = 20, .end = 21, .comm = 1, .peer = 2, .tag = 0})
                              .Add(CommRecord{{RecordKind::kComm, 0x40, 2}, 1, 0, 0, 30, 0, 0, 0, 0, 0, 0, 0})
                              .Add(CommRecord{{RecordKind::kComm, 0, 2}, 1, 99, 77, 40, 2, 0, 2, 4, 0, 0, 0})
                              .Mpi({.op = MpiOp::kSend, .begin = 50, .end = 51, .comm = 1, .peer = 1, .tag = 0})
                              .Mpi({.op = MpiOp::kBarrier, .begin = 60, .end = 61, .comm = 6}));
  ASSERT_EQ(t.comms.rows(), 4u);
  EXPECT_EQ(t.comms.global_id, (std::vector<std::uint64_t>{77, 88, 99, 0}));
  EXPECT_EQ(t.comms.end_ns, (std::vector<std::int64_t>{kNoTime, 30, kNoTime, kNoTime}));
  EXPECT_EQ(TextOf(t, t.comms.name[1]), "tensor parallel");
  EXPECT_EQ(t.comms.parent_id[1], 77u);
  EXPECT_EQ(t.comm_members.world_rank, (std::vector<std::int32_t>{4, 2, 7}));
  EXPECT_EQ(t.comms.unidentified, (std::vector<std::uint8_t>{0, 0, 0, 1}));
  EXPECT_EQ(t.p2p.peer_world_rank, (std::vector<std::int32_t>{7, 6}));
  EXPECT_EQ(t.p2p.comm, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(t.collectives.comm[0], 3u);
  EXPECT_EQ(LossCount(t, "CommUnidentified"), 1u);
}

// Rows are in order of time, and ids of rows follow.
TEST_F(DecodeMpi, RowsAreSortedAndStillReferToEachOther) {
  ThreadRecords a, b;
  a.World(0, 77, 2, 0);
  // Out of order on purpose: a clock step backwards in raw mode.
  a.Mpi({.op = MpiOp::kBarrier, .begin = 500, .end = 510, .seq = 0})
      .Mpi({.op = MpiOp::kBcast, .begin = 300, .end = 310, .peer = 1, .seq = 1});
  b.Mpi({.op = MpiOp::kSend, .begin = 400, .end = 410, .peer = 1, .tag = 0});
  const auto t = Tables(SpoolBuilder().Meta().Process().Thread(0, 100).Thread(1, 101).Records(a, 0).Records(b, 1));
  EXPECT_EQ(t.mpi_calls.begin_ns, (std::vector<std::int64_t>{300, 400, 500}));
  EXPECT_EQ(t.collectives.begin_ns, (std::vector<std::int64_t>{300, 500}));
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(t.mpi_calls.begin_ns[t.collectives.call[i]], t.collectives.begin_ns[i]);
  EXPECT_EQ(t.mpi_calls.begin_ns[t.p2p.call[0]], t.p2p.begin_ns[0]);
}

// A non-blocking write: its request is known, its wait is written down, and it is no message.
TEST_F(DecodeMpi, FileRequestsHaveATableOfTheirOwn) {
  const auto t =
      TablesOf(ThreadRecords()
                   .World(0, 77, 2, 0)
                   .Mpi({.op = MpiOp::kFile_iwrite_at, .begin = 100, .end = 110, .request = 0x40, .bytes = 512})
                   .Mpi({.op = MpiOp::kRput, .begin = 120, .end = 125, .request = 0x50, .bytes = 8, .peer = 1})
                   .Wait(200, 260, {0x40}));
  ASSERT_EQ(t.mpi_requests.rows(), 2u);
  const auto write = t.mpi_requests.Get(0), put = t.mpi_requests.Get(1);
  EXPECT_EQ(write.op, static_cast<std::uint16_t>(MpiOp::kFile_iwrite_at));
  EXPECT_EQ(write.bytes, 512u);
  EXPECT_EQ(write.wait_begin_ns, 200);
  EXPECT_EQ(write.end_ns, 260);
  EXPECT_EQ(write.wait_thread, 0u);
  EXPECT_EQ(write.outcome, 0);
  EXPECT_EQ(put.peer, 1);
  EXPECT_EQ(put.end_ns, kNoTime);
  EXPECT_EQ(put.wait_thread, kNone);
  EXPECT_EQ(put.outcome, 3);
  EXPECT_EQ(t.p2p.rows(), 0u);
  EXPECT_EQ(t.collectives.rows(), 0u);
  EXPECT_EQ(LossCount(t, "RequestUnknown"), 0u);
  EXPECT_EQ(LossCount(t, "RequestNeverCompleted"), 1u);
}

}  // namespace
}  // namespace lockstep::trace
