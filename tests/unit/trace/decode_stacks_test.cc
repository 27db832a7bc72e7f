// Samples of stacks, from the agent's spool to tables.

#include <algorithm>
#include <string_view>
#include <vector>

#include "decode_fixture.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
class DecodeStacks : public DecodeTest {};

constexpr const char* kTree =
    "1\t0\t9\t1\t0\ttrain.py\tmain\n"
    "2\t1\t88\t1\t0\ttrain.py\tcollate\n"
    "3\t2\t0\t0\t1\tlibc.so.6\tnanosleep\n"
    "4\t1\t12\t1\t0\ttrain.py\tstep\n";

SpoolBuilder Slot(const std::vector<SpoolStackSample>& samples) {
  ThreadRecords r;
  r.Mpi({.op = MpiOp::kBarrier, .begin = 100, .end = 105, .seq = 0});
  SpoolBuilder spool;
  spool.Meta().Process().Thread().Records(r).Text(SpoolKind::kStacks, kTree);
  return spool.Block(SpoolKind::kSamples, samples.data(), samples.size() * sizeof samples[0]);
}

TEST_F(DecodeStacks, SamplesAndTheFramesThatTheyNeed) {
  const auto t = Tables(Slot({{300, 100, 3, 40'000}, {200, 100, 0, 0}, {250, 100, 2, 1}, {400, 7777, 2, 1}}));
  ASSERT_EQ(t.stacks.rows(), 3u) << "nothing is of step";
  EXPECT_EQ(t.stacks.parent, (std::vector<std::uint32_t>{kNone, 0, 1}));
  EXPECT_EQ(TextOf(t, t.stacks.function[1]), "collate");
  EXPECT_EQ(TextOf(t, t.stacks.file[1]), "train.py");
  EXPECT_EQ(t.stacks.line, (std::vector<std::uint32_t>{9, 88, 0}));
  EXPECT_EQ(t.stacks.python, (std::vector<std::uint8_t>{1, 1, 0}));
  EXPECT_EQ(t.stacks.library, (std::vector<std::uint8_t>{0, 0, 1}));
  EXPECT_EQ(t.samples.time_ns, (std::vector<std::int64_t>{200, 250, 300, 400}));
  EXPECT_EQ(t.samples.stack, (std::vector<std::uint32_t>{kNone, 1, 2, 1}));
  EXPECT_EQ(t.samples.thread, (std::vector<std::uint32_t>{0, 0, 0, kNone}));
  EXPECT_EQ(t.samples.stopped_ns, (std::vector<std::int64_t>{0, 1, 40'000, 1}));
  EXPECT_EQ(LossCount(t, "UnknownRecord"), 0u);
}

TEST_F(DecodeStacks, EachInTheFileOfItsProcess) {
  SpoolBuilder spool = Slot({{300, 100, 3, 0}, {310, 200, 4, 0}});
  ThreadRecords r;
  r.Mpi({.op = MpiOp::kBarrier, .begin = 100, .end = 105, .seq = 0});
  spool.Process(1, 200, 1).Thread(1, 200, 1).Records(r, 1);
  const Decoded decoded = Decode(spool);
  ASSERT_EQ(decoded.processes.size(), 2u);
  EXPECT_EQ(decoded.processes[0].tables.samples.rows(), 1u);
  EXPECT_EQ(decoded.processes[1].tables.samples.rows(), 1u);
  EXPECT_EQ(decoded.processes[1].tables.stacks.rows(), 2u);
}

TEST_F(DecodeStacks, DamageIsCountedAndEndsNowhere) {
  SpoolBuilder spool = Slot({{300, 100, 9, 0}, {310, 100, 5, 0}, {320, 100, 6, 0}, {330, 100, 2, 0}});
  spool.Text(SpoolKind::kStacks, "5\t5\t1\t1\t0\ta\tring\n6\t7\t1\t1\t0\ta\tlater\n7\t6\t1\n\n\t\t\t\t\t\t");
  const auto t = Tables(spool);
  EXPECT_EQ(t.samples.rows(), 1u);
  EXPECT_EQ(LossCount(t, "UnknownRecord"), 3u);
}

// Numbers of call stacks are a process's own.
TEST_F(DecodeStacks, WhatCalledAnOperation) {
  const std::vector<SpoolCallStack> calls = {{0, 1, 7, 4}, {0, 1, 8, 99}, {1, 1, 7, 2}, {0, 1, 9, 2}};
  SpoolBuilder spool = Slot({{300, 100, 4, 0}});
  ThreadRecords r;
  MpiRecord call{
      {RecordKind::kMpi, 0, 2}, static_cast<std::uint16_t>(MpiOp::kBarrier), 0, 10, 15, 0, 0, 0, 0, -1, -1, 1, 7};
  r.Add(CallStackRecord{{RecordKind::kCallStack, 0, 1}, 7, 0, 0, {}}).Add(call);
  call.begin_ticks = 20, call.end_ticks = 25, call.seq = 2, call.start = 8;  // Whose frames are not there.
  r.Add(call);
  call.begin_ticks = 30, call.end_ticks = 35, call.seq = 3, call.start = 55;  // Which its agent never saw.
  r.Add(call);
  call.begin_ticks = 40, call.end_ticks = 45, call.op = static_cast<std::uint16_t>(MpiOp::kSend), call.peer = 1,
  call.start = 9;
  r.Add(call);
  // Here this is no number of a stack.
  call.begin_ticks = 50, call.end_ticks = 55, call.op = static_cast<std::uint16_t>(MpiOp::kMrecv), call.start = 7;
  r.Add(call);
  spool.Thread(1, 101).Records(r, 1).Block(SpoolKind::kCallStacks, calls.data(), calls.size() * sizeof calls[0]);
  const auto t = Tables(spool);
  ASSERT_EQ(t.collectives.rows(), 4u);
  const auto function = [&](std::uint32_t row) {
    return row < t.stacks.rows() ? TextOf(t, t.stacks.function[row]) : std::string_view("-");
  };
  std::vector<std::string_view> callers;
  for (const std::uint32_t caller : t.collectives.caller) callers.push_back(function(caller));
  std::sort(callers.begin(), callers.end());
  EXPECT_EQ(callers, (std::vector<std::string_view>{"-", "-", "-", "step"}));
  ASSERT_EQ(t.p2p.rows(), 2u);
  EXPECT_EQ(function(t.p2p.caller[0]), "collate");
  EXPECT_EQ(function(t.p2p.caller[1]), "-");
  EXPECT_EQ(t.stacks.rows(), 3u) << "main, step and collate, each once, of samples and of calls";
  EXPECT_EQ(t.samples.rows(), 1u);
  EXPECT_EQ(function(t.samples.stack[0]), "step");
  EXPECT_EQ(LossCount(t, "UnknownRecord"), 0u);
}

}  // namespace
}  // namespace lockstep::trace
