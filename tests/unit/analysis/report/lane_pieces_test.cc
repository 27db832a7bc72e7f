// The timeline draws the identity: its pieces sum to the terms that merge counts by another walk.

#include "analysis/report/html/lane_pieces.h"

#include <gtest/gtest.h>

#include "analysis/core/statistics.h"
#include "merge/timeline/breakdown.h"
#include "tests/unit/merge/activity_sets.h"

namespace lockstep::report {
namespace {

IntervalSet RandomSet(analysis::SeededRandom& random, std::size_t n) {
  std::vector<Interval> intervals;
  for (std::size_t i = 0; i < n; ++i) {
    const auto begin = static_cast<std::int64_t>(random.Below(1000));
    intervals.push_back({begin, begin + static_cast<std::int64_t>(random.Below(60))});
  }
  return Normalize(std::move(intervals));
}

std::int64_t Of(const std::vector<Piece>& pieces, std::int64_t begin, std::initializer_list<PieceState> states) {
  std::int64_t sum = 0;
  for (const Piece& piece : pieces) {
    for (const PieceState state : states)
      if (piece.state == state) sum += piece.end_ns - begin;
    begin = piece.end_ns;
  }
  return sum;
}

TEST(LanePieces, SumToTheIdentity) {
  analysis::SeededRandom random(7);
  for (int round = 0; round < 400; ++round) {
    RankLane lane;
    lane.comm.gpu = round % 2 == 0;
    lane.comm.busy = RandomSet(random, 8);
    lane.comm.inside_mpi = RandomSet(random, 5);
    lane.copy = RandomSet(random, 3);
    lane.input = RandomSet(random, 2);
    const IntervalSet busy = lane.comm.busy;
    if (!lane.comm.gpu) {
      lane.blocked = RandomSet(random, 6);
      lane.awaited = Subtract(RandomSet(random, 4), busy);
      lane.comm.busy = Unite(busy, lane.awaited);
    }
    std::vector<merge::CommOp> ops;
    for (std::size_t i = 0; i < 6; ++i) {
      const auto begin = static_cast<std::int64_t>(random.Below(1000));
      const std::int64_t wait_end = begin + static_cast<std::int64_t>(random.Below(50));
      const std::int64_t transfer = wait_end + static_cast<std::int64_t>(random.Below(2) * random.Below(20));
      const std::int64_t end = transfer + static_cast<std::int64_t>(random.Below(80));
      const bool certain = random.Below(2) == 0;
      ops.push_back({begin, wait_end, transfer, end, certain});
      lane.comm.ops.push_back({begin, wait_end, transfer, end, certain, 0, schema::kNone, schema::kNone, 0});
    }
    merge::RankActivity activity;
    activity.gpu = lane.comm.gpu;
    activity.busy = busy;
    activity.blocked = lane.blocked;
    activity.awaited = lane.awaited;
    activity.inside_mpi = lane.comm.inside_mpi;
    activity.copy = lane.copy;
    activity.input = lane.input;
    merge::AddOps(ops, activity);
    const Interval window{100, 900};
    const merge::Terms terms = merge::BreakDown(activity, {window})[0];
    const std::vector<Piece> pieces = CutIntoPieces(lane, window);
    ASSERT_FALSE(pieces.empty());
    EXPECT_EQ(pieces.back().end_ns, window.end);
    using enum PieceState;
    const auto sum = [&](std::initializer_list<PieceState> states) { return Of(pieces, window.begin, states); };
    EXPECT_EQ(sum({kCompute, kHiddenTransfer, kHiddenWait, kHiddenUnsplit, kPosted}), terms.compute_ns);
    EXPECT_EQ(sum({kBlocked, kBlockedHiddenTransfer, kBlockedHiddenWait, kBlockedHiddenUnsplit, kBlockedPosted}),
              terms.blocked_ns);
    EXPECT_EQ(sum({kHiddenTransfer, kHiddenWait, kHiddenUnsplit, kBlockedHiddenTransfer, kBlockedHiddenWait,
                   kBlockedHiddenUnsplit}),
              terms.overlap_ns);
    EXPECT_EQ(sum({kTransfer}), terms.exposed_transfer_ns);
    EXPECT_EQ(sum({kWait}), terms.exposed_wait_ns);
    EXPECT_EQ(sum({kUnsplit}), terms.exposed_unsplit_ns);
    EXPECT_EQ(sum({kCopy}), terms.exposed_copy_ns);
    EXPECT_EQ(sum({kIdle, kInput}), terms.idle_ns);
  }
}

TEST(LanePieces, CoarseOnesCoverTheWindowAndShowWhatFills) {
  std::vector<Piece> fine;
  for (std::int64_t t = 1; t <= 1000; ++t) fine.push_back({t * 10, t % 2 ? PieceState::kCompute : PieceState::kWait});
  for (std::int64_t t = 0; t < 500; ++t)
    fine[static_cast<std::size_t>(t)].state = t % 5 ? PieceState::kCompute : PieceState::kIdle;
  const std::vector<Piece> coarse = Coarsened(fine, {0, 10'000}, 10);
  EXPECT_LE(coarse.size(), 10u);
  EXPECT_EQ(coarse.back().end_ns, 10'000);
  EXPECT_EQ(coarse.front().state, PieceState::kCompute);
  EXPECT_EQ(coarse.front().end_ns >= 5'000, true);
  EXPECT_EQ(Coarsened(coarse, {0, 10'000}, 10).size(), coarse.size());
}

}  // namespace
}  // namespace lockstep::report
