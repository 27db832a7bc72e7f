// When the training thread was in communication that no source records, told by its ranges.

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
  IntervalSet Calls(bool gpu = false) const { return UnrecordedCalls(t, *ingest::ReadFromMemory(t), 0, gpu); }
};

constexpr std::uint8_t kHook = schema::RangeSource::kTorch, kOperator = schema::RangeSource::kCpuOp;

TEST(UnrecordedCalls, LastAsLongAsTheirRanges) {
  Rank rank;
  rank.Range("DistributedDataParallel.forward", 0, 1000, kHook, schema::Category::kForward);
  rank.Range("c10d::broadcast_coalesced", 100, 300, kHook, schema::Category::kCommunication);
  rank.Range("record_param_comms", 500, 700, kOperator);
  rank.Range("c10d::allreduce_", 450, 720, kOperator);
  rank.Range("c10d::all_reduce", 800, 900, kHook, schema::Category::kCommunication, 1);
  EXPECT_EQ(rank.Calls(), (IntervalSet{{100, 300}, {450, 720}})) << "of the training thread, and each instant once";
}

// What is only posted is under way while the thread works.
TEST(UnrecordedCalls, OperationsCountWhileNoOperatorRuns) {
  Rank rank;
  rank.Range("autograd::engine::evaluate_function: AccumulateGrad", 90, 110, kOperator);
  rank.Range("gloo:all_reduce", 100, 600, kOperator, schema::Category::kCommunication);
  rank.Range("aten::mm", 150, 400, kOperator);
  rank.Range("aten::mm_inside", 160, 390, kOperator);
  EXPECT_EQ(rank.Calls(), (IntervalSet{{100, 150}, {400, 600}}));
}

TEST(UnrecordedCalls, OfGpuRanksOnlyWhatSaysSo) {
  Rank rank;
  rank.Range("c10d::allreduce_", 100, 300, kOperator);
  rank.Range("c10d::all_reduce", 500, 600, kHook, schema::Category::kCommunication);
  EXPECT_EQ(rank.Calls(true), (IntervalSet{{500, 600}}));
}

TEST(UnrecordedCalls, OtherRangesAreNone) {
  Rank rank;
  rank.Range("user's communication", 0, 1000, kHook, schema::Category::kCommunication);
  rank.Range("nccl:all_reduce", 0, 1000, kOperator);
  EXPECT_TRUE(rank.Calls().empty());
}

}  // namespace
}  // namespace lockstep::merge
