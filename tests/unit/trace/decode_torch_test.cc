// Works of PyTorch's c10d -> rows of collectives and p2p.

#include "core/torch_records.h"
#include "decode_fixture.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
using schema::kNoTime;

constexpr std::uint32_t kGroup = 0xc1000000u;
constexpr std::uint32_t kTraining = 0, kCarrier = 1, kOtherCarrier = 2;  // Rings.

CommRecord GroupOfTwo() {
  return {{RecordKind::kComm, schema::CommKind::kTorchGroup, 2}, kGroup, 77, 0, 1, 2, 0, 0, 1, 0, 0, 0};
}
TorchBeginRecord Begin(std::uint64_t work, std::uint64_t queued_ticks, std::uint64_t ticks, std::uint64_t seq) {
  TorchBeginRecord record{};
  record.head = {RecordKind::kTorchBegin, schema::Code(CollectiveKind::kAllReduce), 2};
  record.comm = kGroup;
  record.ticks = ticks;
  record.work = work;
  record.queued_ticks = queued_ticks;
  record.seq = seq;
  record.count = 1000;
  record.peer = -1;
  record.tag = -1;
  record.dtype = static_cast<std::uint16_t>(DataType::kFloat32);
  return record;
}
TorchEndRecord End(std::uint64_t work, std::uint64_t ticks) {
  return {{RecordKind::kTorchEnd, 0, 1}, 0, ticks, work, 0};
}

class DecodeTorchTest : public DecodeTest {
 protected:
  schema::RankTables Run() {
    SpoolBuilder spool;
    spool.Meta().Process().Thread(kTraining, 100).Thread(kCarrier, 101).Thread(kOtherCarrier, 102);
    for (std::uint32_t ring = 0; ring < 3; ++ring)
      if (threads_[ring].slots() != 0) spool.Records(threads_[ring], ring);
    return Tables(spool.End(1'000'000));
  }
  ThreadRecords threads_[3];
};

TEST_F(DecodeTorchTest, ACollectiveIsOfTheThreadThatCarriedIt) {
  threads_[kTraining].Add(GroupOfTwo());
  threads_[kCarrier].Add(Begin(1, 100, 110, 0)).Add(End(1, 300)).Add(Begin(2, 150, 310, 1)).Add(End(2, 350));
  threads_[kOtherCarrier].Add(Begin(3, 0, 200, 2)).Add(End(3, 320));
  const schema::RankTables t = Run();
  ASSERT_EQ(t.collectives.rows(), 3u);
  const auto row = t.collectives.Get(0);
  EXPECT_EQ(t.threads.tid[row.thread], 101);
  EXPECT_EQ(row.mode, schema::Code(CollectiveMode::kBlocking));
  EXPECT_EQ(row.enqueue_begin_ns, 100);
  EXPECT_EQ(row.begin_ns, 110);
  EXPECT_EQ(row.wait_begin_ns, 110);
  EXPECT_EQ(row.end_ns, 300);
  EXPECT_EQ(row.post_end_ns, 300);
  EXPECT_EQ(row.bytes, 4000u);
  EXPECT_EQ(row.count, 1000u);
  EXPECT_EQ(row.seq, 0u);
  EXPECT_EQ(t.comms.global_id[row.comm], 77u);
  EXPECT_EQ(t.comms.kind[row.comm], schema::CommKind::kTorchGroup);
  const auto beside = t.collectives.Get(1);
  EXPECT_EQ(t.threads.tid[beside.thread], 102);
  EXPECT_EQ(beside.enqueue_begin_ns, kNoTime) << "not known";
  EXPECT_EQ(beside.begin_ns, 200);
  EXPECT_EQ(beside.end_ns, 320);
  EXPECT_EQ(t.collectives.enqueue_begin_ns[2], 150);
  EXPECT_EQ(t.collectives.begin_ns[2], 310);
}

TEST_F(DecodeTorchTest, WhatNeverEndedIsThere) {
  threads_[kCarrier].Add(GroupOfTwo()).Add(Begin(1, 90, 100, 0));
  const schema::RankTables t = Run();
  ASSERT_EQ(t.collectives.rows(), 1u);
  EXPECT_EQ(t.collectives.begin_ns[0], 100);
  EXPECT_EQ(t.collectives.end_ns[0], kNoTime);
  EXPECT_EQ(t.collectives.wait_begin_ns[0], kNoTime);
}

TEST_F(DecodeTorchTest, AnEndWithoutABeginIsCounted) {
  threads_[kCarrier].Add(End(9, 300));
  const schema::RankTables t = Run();
  EXPECT_EQ(t.collectives.rows(), 0u);
  EXPECT_EQ(LossCount(t, "RequestUnknown"), 1u);
}

TEST_F(DecodeTorchTest, AMessageEndsSomewhereBetweenPostAndWait) {
  TorchBeginRecord send = Begin(1, 0, 100, 0);
  send.head.flags = 0;
  send.message = kTorchSend;
  send.peer = 1;
  send.tag = 5;
  threads_[kTraining].Add(GroupOfTwo()).Add(send).Add(End(1, 300));
  const schema::RankTables t = Run();
  ASSERT_EQ(t.p2p.rows(), 1u);
  const auto row = t.p2p.Get(0);
  EXPECT_EQ(row.direction, schema::Direction::kSend);
  EXPECT_EQ(row.mode, schema::Code(CollectiveMode::kNonBlocking));
  EXPECT_EQ(row.peer_world_rank, 1);
  EXPECT_EQ(row.tag, 5);
  EXPECT_EQ(row.begin_ns, 100);
  EXPECT_EQ(row.wait_begin_ns, 100);
  EXPECT_EQ(row.end_ns, 300);
  EXPECT_EQ(row.outcome, schema::RequestOutcome::kCompleted);
  EXPECT_EQ(t.collectives.rows(), 0u);
}

TEST_F(DecodeTorchTest, WhoSentToAReceiveFromAnySourceIsToldAfterwards) {
  const auto receive = [](std::uint64_t work, std::int32_t peer) {
    TorchBeginRecord record = Begin(work, 0, 100 * work, 0);
    record.head.flags = 0;
    record.message = kTorchReceive;
    record.peer = peer;
    record.tag = 5;
    return record;
  };
  const auto source = [](std::uint64_t work, std::uint64_t ticks, std::uint32_t rank) {
    TorchEndRecord record = End(work, ticks);
    record.sender = rank + 1;
    return record;
  };
  threads_[kTraining].Add(GroupOfTwo()).Add(receive(1, -1)).Add(End(1, 150)).Add(source(1, 160, 1));
  threads_[kTraining].Add(receive(2, -1)).Add(End(2, 250));
  threads_[kTraining].Add(receive(3, 0)).Add(End(3, 350)).Add(source(3, 360, 1)).Add(source(9, 370, 1));
  const schema::RankTables t = Run();
  ASSERT_EQ(t.p2p.rows(), 3u);
  EXPECT_EQ(t.p2p.peer_world_rank[0], 1);
  EXPECT_EQ(t.p2p.end_ns[0], 150) << "not when it was told";
  EXPECT_EQ(t.p2p.peer_world_rank[1], -1) << "nobody told";
  EXPECT_EQ(t.p2p.peer_world_rank[2], 0) << "known before";
  EXPECT_EQ(LossCount(t, "RequestUnknown"), 0u);
}

}  // namespace
}  // namespace lockstep::trace
