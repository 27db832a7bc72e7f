// The intersection of the ranks' capture windows, and what it excuses.

#include "merge/windows/windows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "rank_builder.h"

namespace lockstep::merge {
namespace {

using test::RankBuilder;
using Rows = std::vector<std::vector<std::int64_t>>;

class Windows : public testing::Test {
 protected:
  void Make(std::int32_t ranks) {
    for (std::int32_t r = 0; r < ranks; ++r) {
      ranks_.push_back(std::make_unique<RankBuilder>(r, ranks));
      ranks_.back()->Meta("recording", "steps");
    }
  }
  RankBuilder& At(std::size_t r) { return *ranks_[r]; }

  // Rank r records the steps [first, end), 100 ns each from 100 * first, one collective in each.
  void Record(std::size_t r, std::int64_t first, std::int64_t end, bool cut = false, bool numbered = true) {
    At(r).t.windows.Append({.begin_ns = 100 * first,
                            .end_ns = 100 * end,
                            .first_step = numbered ? first : -1,
                            .end_step = numbered ? end : -1,
                            .begin_cause = 1,
                            .end_cause = 1,
                            .cut = cut});
    for (std::int64_t i = first; i < end; ++i) {
      At(r).Step(i, 100 * i, 100 * i + 100);
      At(r).Collective(CollectiveKind::kAllReduce, 100 * i + 10, 100 * i + 20);
      At(r).t.collectives.seq.back() = static_cast<std::uint64_t>(i);
    }
  }

  void Run() {
    schema::Clock clock;
    for (const auto& rank : ranks_) clock.Append({.rank = rank->rank()});
    for (const auto& rank : ranks_) clocks_.emplace_back(clock, rank->rank());
    recorded_.resize(ranks_.size());
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const Interval span = CapturedSpan(ranks_[r]->t);
      recorded_[r] = WindowsOf(ranks_[r]->t);
      MatchRank match{ranks_[r]->rank(), &ranks_[r]->t, &clocks_[r], span};
      match.in_parts = RecordedInParts(ranks_[r]->t);
      match.cut_begin = match.cut_end = match.in_parts;
      match.windows = &recorded_[r];
      match_.push_back(match);
    }
    matched_ = MatchCollectives(match_, 0, 1);
    steps_ = FindSteps(match_, matched_);
    windows_ = CommonWindows(match_, steps_);
  }
  Rows Table() const {
    Rows rows;
    const schema::TlWindows& t = windows_.table;
    for (std::size_t i = 0; i < t.rows(); ++i)
      rows.push_back({t.first_step[i], t.end_step[i], t.begin_ns[i], t.end_ns[i], t.outside_steps[i], t.cut[i]});
    return rows;
  }

  std::vector<std::unique_ptr<RankBuilder>> ranks_;
  std::vector<ClockMap> clocks_;
  std::vector<std::vector<RecordedWindow>> recorded_;
  std::vector<MatchRank> match_;
  MatchedCollectives matched_;
  JobSteps steps_;
  JobWindows windows_;
};

TEST_F(Windows, StepsOfAllRanks) {
  Make(3);
  Record(0, 10, 20);
  Record(1, 12, 20);
  Record(2, 10, 19);
  Run();
  EXPECT_EQ(Table(), (Rows{{12, 19, 1200, 1900, 3, 0}}));
  EXPECT_EQ(windows_.outside_steps, 3);
  ASSERT_EQ(windows_.losses.size(), 1u);
  EXPECT_EQ(windows_.losses[0].name, "WindowDiffers");
  EXPECT_EQ(windows_.losses[0].count, 3u);
  // Nothing of it is an error: the collectives of those steps lack members.
  EXPECT_EQ(matched_.unmatched, 0u);
  EXPECT_EQ(matched_.outside, 3u);
  EXPECT_TRUE(matched_.losses.empty());
  EXPECT_TRUE(steps_.losses.empty());
  const auto parts = AnalysisParts(windows_, match_, steps_, 0, INT64_MAX);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].first_step, 12);
  EXPECT_EQ(parts[0].last_step, 18);
}

TEST_F(Windows, SeveralAndOneThatSomeRankLacks) {
  Make(2);
  Record(0, 10, 13), Record(0, 20, 23), Record(0, 30, 33, true);
  Record(1, 10, 13), Record(1, 30, 33);
  Run();
  EXPECT_EQ(Table(), (Rows{{10, 13, 1000, 1300, 0, 0}, {30, 33, 3000, 3300, 0, 1}}));
  EXPECT_EQ(windows_.outside_steps, 3);
  EXPECT_EQ(matched_.unmatched, 0u);
  EXPECT_EQ(steps_.mismatched, 0u);
  const auto parts = AnalysisParts(windows_, match_, steps_, 11, 30);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ((Rows{{parts[0].first_step, parts[0].last_step}, {parts[1].first_step, parts[1].last_step}}),
            (Rows{{11, 12}, {30, 30}}));
}

TEST_F(Windows, ThatTouchStayTwo) {
  Make(2);
  for (std::size_t r = 0; r < 2; ++r) Record(r, 0, 3), Record(r, 3, 6);
  Run();
  EXPECT_EQ(Table(), (Rows{{0, 3, 0, 300, 0, 0}, {3, 6, 300, 600, 0, 0}}));
}

TEST_F(Windows, ACollectiveThatIsMissingInsideAWindowIsMissing) {
  Make(2);
  Record(0, 10, 15);
  Record(1, 10, 15);
  auto& rows = At(1).t.collectives;
  rows.seq[2] = 99;  // Rank 1 has no number 12 between 11 and 13.
  Run();
  EXPECT_EQ(matched_.unmatched, 1u);
}

TEST_F(Windows, ByTimeWhereNoStepIsNumbered) {
  Make(2);
  Record(0, 10, 20, false, false);
  Record(1, 12, 25, false, false);
  Run();
  EXPECT_EQ(Table(), (Rows{{-1, -1, 1200, 2000, 0, 0}}));
  EXPECT_EQ(windows_.outside_steps, 7);
  EXPECT_EQ(matched_.unmatched, 0u);
}

TEST_F(Windows, NothingInCommon) {
  Make(2);
  Record(0, 10, 12);
  Record(1, 20, 22);
  Run();
  EXPECT_TRUE(Table().empty());
  EXPECT_EQ(windows_.outside_steps, 4);
  EXPECT_EQ(matched_.unmatched, 0u);
}

TEST_F(Windows, ARunWithoutThemIsOneAndDiffersNowhere) {
  for (std::int32_t r = 0; r < 2; ++r) ranks_.push_back(std::make_unique<RankBuilder>(r, 2));
  for (std::size_t r = 0; r < 2; ++r) Record(r, 0, 5 - static_cast<std::int64_t>(r));
  for (std::size_t r = 0; r < 2; ++r) At(r).t.windows.begin_cause[0] = 0, At(r).t.windows.end_cause[0] = 8;
  Run();
  EXPECT_FALSE(windows_.in_parts);
  EXPECT_EQ(windows_.table.rows(), 1u);
  EXPECT_TRUE(windows_.losses.empty());
  EXPECT_EQ(matched_.unmatched, 1u);  // A real one: rank 1 stopped a step early.
}

}  // namespace
}  // namespace lockstep::merge
