// Communication that no source records, told by its ranges.

#include "merge/timeline/unrecorded_calls.h"

#include <gtest/gtest.h>

#include "rank_builder.h"

namespace lockstep::merge {
namespace {

using test::RankBuilder;

struct Rank : RankBuilder {
  Rank() : RankBuilder(0, 2) {}
  void Range(std::string_view name, std::int64_t begin, std::int64_t end, std::uint8_t source,
             std::uint8_t category = 0, std::uint32_t thread = 0) {
    Input(begin, end);
    t.ranges.category.back() = category;
    t.ranges.name.back() = Text(std::string(name));
    t.ranges.source.back() = source;
    t.ranges.thread.back() = thread;
  }
  UnrecordedComm Comm(bool gpu = false) const { return FindUnrecordedComm(t, 0, gpu); }
  IntervalSet Waiting(bool gpu = false) const { return Comm(gpu).waiting; }
};

constexpr std::uint8_t kHook = schema::RangeSource::kTorch, kOperator = schema::RangeSource::kCpuOp;

TEST(UnrecordedCalls, LastAsLongAsTheirRanges) {
  Rank rank;
  rank.Range("DistributedDataParallel.forward", 0, 1000, kHook, schema::Category::kForward);
  rank.Range("c10d::broadcast_coalesced", 100, 300, kHook, schema::Category::kCommunication);
  rank.Range("record_param_comms", 500, 700, kOperator);
  rank.Range("c10d::allreduce_", 450, 720, kOperator);
  rank.Range("c10d::all_reduce", 800, 900, kHook, schema::Category::kCommunication, 1);
  EXPECT_EQ(rank.Waiting(), (IntervalSet{{100, 300}, {450, 720}})) << "of the training thread, and each instant once";
}

// What is only posted is under way while the thread works.
TEST(UnrecordedCalls, OperationsCountWhileNoOperatorRuns) {
  Rank rank;
  rank.Range("autograd::engine::evaluate_function: AccumulateGrad", 90, 110, kOperator);
  rank.Range("gloo:all_reduce", 100, 600, kOperator, schema::Category::kCommunication);
  rank.Range("aten::mm", 150, 400, kOperator);
  rank.Range("aten::mm_inside", 160, 390, kOperator);
  EXPECT_EQ(rank.Waiting(), (IntervalSet{{100, 150}, {400, 600}}));
  EXPECT_EQ(rank.Comm().operations, (IntervalSet{{100, 600}}));
}

TEST(UnrecordedCalls, OperationsOfAnyThreadsAreInFlight) {
  Rank rank;
  rank.Range("gloo:all_reduce", 100, 600, kHook, schema::Category::kCommunication, 1);
  rank.Range("gloo:broadcast", 500, 900, kHook, schema::Category::kCommunication, 2);
  rank.Range("aten::add_", 200, 300, kOperator, 0, 1);
  rank.Range("autograd::engine::evaluate_function: MmBackward0", 550, 700, kOperator, schema::Category::kBackward, 3);
  rank.Range("aten::mm", 850, 1000, kOperator);
  rank.Range("_c10d_functional::wait_tensor", 100, 500, kOperator);
  EXPECT_EQ(rank.Comm().operations, (IntervalSet{{100, 900}}));
  EXPECT_EQ(rank.Waiting(), (IntervalSet{{100, 550}, {700, 850}}));
  EXPECT_EQ(rank.Waiting(true), rank.Waiting());
}

// What hands an operation over may be what waits for it; its own operators work.
TEST(UnrecordedCalls, OperatorsAroundAHandOverMayWait) {
  Rank rank;
  rank.Range("gloo:all_reduce", 100, 600, kHook, schema::Category::kCommunication, 1);
  rank.Range("autograd::engine::evaluate_function: AccumulateGrad", 50, 800, kOperator, schema::Category::kBackward, 3);
  rank.Range("c10d::allreduce_", 60, 90, kOperator, 0, 3);
  rank.Range("aten::div_", 300, 400, kOperator, 0, 3);
  EXPECT_EQ(rank.Waiting(), (IntervalSet{{100, 300}, {400, 600}}));
}

TEST(UnrecordedCalls, WhatTheHostRecordedIsTheOperations) {
  Rank rank;
  rank.Range("gloo:all_reduce", 100, 600, kHook, schema::Category::kCommunication, 1);
  rank.Collective(CollectiveKind::kAllReduce, 110, 590);
  EXPECT_TRUE(rank.Comm().operations.empty());
  rank.t.collectives.mode.back() = schema::Code(CollectiveMode::kGpu);
  EXPECT_EQ(rank.Comm().operations, (IntervalSet{{100, 600}})) << "a kernel's collective is another";
}

TEST(UnrecordedCalls, OfGpuRanksOnlyWhatSaysSo) {
  Rank rank;
  rank.Range("c10d::allreduce_", 100, 300, kOperator);
  rank.Range("c10d::all_reduce", 500, 600, kHook, schema::Category::kCommunication);
  EXPECT_EQ(rank.Waiting(true), (IntervalSet{{500, 600}}));
}

TEST(UnrecordedCalls, OtherRangesAreNone) {
  Rank rank;
  rank.Range("user's communication", 0, 1000, kHook, schema::Category::kCommunication);
  rank.Range("nccl:all_reduce", 0, 1000, kOperator);
  rank.Range("mpi::barrier", 0, 1000, kOperator);
  EXPECT_TRUE(rank.Comm().InFlight().empty());
}

}  // namespace
}  // namespace lockstep::merge
