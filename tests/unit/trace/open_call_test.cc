// What a thread was inside of when its process ended.

#include "trace/decode/open_call.h"

#include "decode_fixture.h"

namespace lockstep::trace {
namespace {

using schema::kNoTime;

class OpenCalls : public DecodeTest {
 protected:
  // What is said of a thread that made `records` and is inside `op`.
  std::vector<OpenCallFact> OpenIn(MpiOp op, const OpenCall& open, const ThreadRecords& records) {
    std::vector<std::byte> bytes(kRingHeaderBytes);
    auto* ring = reinterpret_cast<RingHeader*>(bytes.data());
    ring->call_op = static_cast<std::uint32_t>(op);
    ring->call_begin_ticks = 800;
    ring->open_call = open;
    return OpenCallsOf(Tables(SpoolBuilder()
                                  .Meta()
                                  .Process()
                                  .Thread()
                                  .Records(records)
                                  .Block(SpoolKind::kRing, bytes.data(), bytes.size())
                                  .End(1000, 0, 9)));
  }
};

TEST_F(OpenCalls, ACollective) {
  const OpenCall open{.flags = kOpenCallKnown | kMpiUneven,
                      .dtype = static_cast<std::uint16_t>(DataType::kFloat64),
                      .count = 10,
                      .bytes = 80,
                      .comm = 0,
                      .seq = 7,
                      .peer = 3,
                      .tag = -1};
  const auto calls = OpenIn(MpiOp::kGatherv, open, ThreadRecords().World(0, 77, 4, 1));
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].awaits, Awaits::kCollective);
  EXPECT_EQ(calls[0].begin_ns, 800);
  EXPECT_EQ(calls[0].posted_ns, kNoTime);
  EXPECT_EQ(calls[0].comm, 0u);
  EXPECT_EQ(calls[0].seq, 7u);
  EXPECT_EQ(calls[0].bytes, 80u);
  EXPECT_EQ(calls[0].count, 10u);
  EXPECT_EQ(calls[0].dtype, open.dtype);
  EXPECT_TRUE(calls[0].uneven);
  EXPECT_EQ(calls[0].peer, 3);
}

TEST_F(OpenCalls, ASendWithAReceive) {
  const OpenCall open{.flags = kOpenCallKnown | kOpenCallReceives,
                      .bytes = 8,
                      .comm = 0,
                      .peer = 2,
                      .tag = 5,
                      .source = -2,
                      .source_tag = 6};
  const auto calls = OpenIn(MpiOp::kSendrecv, open, ThreadRecords().World(0, 77, 4, 1));
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].awaits, Awaits::kSend);
  EXPECT_EQ(calls[0].peer, 2);
  EXPECT_EQ(calls[0].tag, 5);
  EXPECT_EQ(calls[1].awaits, Awaits::kReceive);
  EXPECT_EQ(calls[1].peer, -2);
  EXPECT_EQ(calls[1].tag, 6);
}

TEST_F(OpenCalls, AWaitNamesWhatWasPosted) {
  ThreadRecords posted;
  posted.World(0, 77, 4, 1);
  posted.Mpi({.op = MpiOp::kIallreduce, .begin = 110, .end = 112, .request = 5, .seq = 4});
  posted.Mpi({.op = MpiOp::kIrecv, .begin = 120, .end = 122, .request = 6, .peer = 3, .tag = 9});
  posted.Mpi({.op = MpiOp::kIsend, .begin = 130, .end = 132, .request = 8, .peer = 2, .tag = 9});
  OpenCall open{.flags = kOpenCallKnown, .handles = 3, .bytes = 3, .comm = kNoComm};
  open.handle[0] = 6;
  open.handle[1] = 5;
  open.handle[2] = 99;  // Made by a call that is not wrapped.
  const auto calls = OpenIn(MpiOp::kWaitall, open, posted);
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].awaits, Awaits::kReceive);
  EXPECT_EQ(calls[0].posted_ns, 120);
  EXPECT_EQ(calls[0].peer, 3);
  EXPECT_EQ(calls[1].awaits, Awaits::kCollective);
  EXPECT_EQ(calls[1].posted_ns, 110);
  EXPECT_EQ(calls[1].seq, 4u);
  for (const OpenCallFact& call : calls) EXPECT_EQ(call.requests, 3u);
}

TEST_F(OpenCalls, AWaitForASendAndAReceiveOfOneRequest) {
  ThreadRecords posted;
  posted.World(0, 77, 4, 1);
  posted.Mpi({.op = MpiOp::kIsendrecv, .begin = 110, .end = 112, .request = 5, .peer = 2, .tag = 8});
  posted.Completion(0, kCompletionPending, 3, 9, 64);
  OpenCall open{.flags = kOpenCallKnown, .handles = 1, .bytes = 1, .comm = kNoComm};
  open.handle[0] = 5;
  const auto calls = OpenIn(MpiOp::kWait, open, posted);
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].awaits, Awaits::kSend);
  EXPECT_EQ(calls[0].peer, 2);
  EXPECT_EQ(calls[0].tag, 8);
  EXPECT_EQ(calls[1].awaits, Awaits::kReceive);
  EXPECT_EQ(calls[1].peer, 3);
  EXPECT_EQ(calls[1].tag, 9);
  for (const OpenCallFact& call : calls) EXPECT_EQ(call.posted_ns, 110);
}

TEST_F(OpenCalls, DamageIsNotFollowed) {
  OpenCall open{.flags = kOpenCallKnown, .handles = 255, .bytes = UINT64_MAX, .comm = 4711};
  EXPECT_EQ(OpenIn(MpiOp::kWait, open, ThreadRecords().World(0, 77, 4, 1)).size(), 1u);
  open.flags |= kOpenCallReceives;
  EXPECT_EQ(OpenIn(static_cast<MpiOp>(65535), open, ThreadRecords().World(0, 77, 4, 1))[0].awaits, Awaits::kNothing);
}

TEST(OpenCallText, SaysWhatItReads) {
  OpenCallFact call{.op = 4,
                    .awaits = Awaits::kCreation,
                    .requests = 2,
                    .begin_ns = -5,
                    .posted_ns = 7,
                    .comm = 0,
                    .seq = UINT64_MAX,
                    .bytes = 8,
                    .count = 1,
                    .dtype = 12,
                    .uneven = true,
                    .peer = -2,
                    .tag = 0};
  EXPECT_EQ(TextOf(ReadOpenCall(TextOf(call))), TextOf(call));
  EXPECT_EQ(ReadOpenCall(TextOf(call)).seq, UINT64_MAX);
  EXPECT_EQ(TextOf(ReadOpenCall("")), TextOf(OpenCallFact()));
  EXPECT_EQ(TextOf(ReadOpenCall("op=70000\tpeer=x\tawaits=anything\tcomm=-1")), TextOf(OpenCallFact()));
}

}  // namespace
}  // namespace lockstep::trace
