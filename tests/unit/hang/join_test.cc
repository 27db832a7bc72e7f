#include "hang/join.h"

#include <gtest/gtest.h>

#include <vector>

#include "jobs.h"

namespace lockstep::hang {
namespace {

TEST(Join, OneAnswerOfBoth) {
  // Recorded: rank 1 is alive and waits for rank 2 in "tp". Dumped: rank 0 waits for rank 1 in "dp"; rank 2 left none.
  Progress recorded = JobOf({Named("tp", {At(1, 8, 7), At(2, 7, 7)})});
  recorded.ranks[1].state = RankState::kStopped;
  Join(recorded, JobOf({Named("dp", {At(0, 5, 4), At(1, 4, 4), Unseen(2)})}));
  std::vector<std::int32_t> ranks;
  for (const RankFacts& facts : recorded.ranks) ranks.push_back(facts.rank);
  EXPECT_EQ(ranks, (std::vector<std::int32_t>{0, 1, 2}));
  const Judgement judgement = Judge(recorded, {});
  ASSERT_EQ(judgement.verdicts.size(), 1u);
  EXPECT_EQ(judgement.verdicts[0].cause, Cause::kStopped);
  EXPECT_EQ(judgement.verdicts[0].culprits, (std::vector<std::int32_t>{2}));
}

TEST(Join, WhatIsKnownOfAProcessStays) {
  Progress recorded = JobOf({Named("dp", {At(0, 5, 5)})});
  recorded.ranks[0].state = RankState::kKilled;
  recorded.ranks[0].host = "node1";
  Progress dumps = recorded;
  dumps.ranks[0].state = RankState::kAlive;
  dumps.ranks[0].host = "node2";
  Join(recorded, dumps);
  ASSERT_EQ(recorded.ranks.size(), 1u);
  EXPECT_EQ(recorded.ranks[0].state, RankState::kKilled);
  EXPECT_EQ(recorded.ranks[0].host, "node1");
  EXPECT_EQ(recorded.groups.size(), 2u);
}

TEST(Join, WhatCountsLeaveOpenOnlyDumpsOfAllRanksTell) {
  const auto open_with = [](Source source, std::vector<std::string> of_rank_1) {
    Progress counts = JobOf({Named("world", {At(0, 5, 5), At(1, 5, 5)})});
    counts.source = Source::kAnswer;
    counts.open = Open::kWhoIsInside;
    Progress other = JobOf({Named("dp", {At(0, 5, 5), At(1, 5, 5)})});
    other.source = source;
    if (source == Source::kDump) other.ranks[0].shows = {"NCCL"};
    other.ranks[1].shows = std::move(of_rank_1);
    Join(other, counts);
    return other.open;
  };
  EXPECT_EQ(open_with(Source::kDump, {"NCCL"}), Open::kNothing);
  EXPECT_EQ(open_with(Source::kDump, {}), Open::kWhoIsInside);
  EXPECT_EQ(open_with(Source::kRankFile, {}), Open::kWhoIsInside);
}

}  // namespace
}  // namespace lockstep::hang
