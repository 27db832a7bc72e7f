// Which of the given files are of one run.

#include "ingest/runs.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::ingest {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000, kDay = 86'400 * kSecond;

std::vector<std::vector<std::size_t>> Runs(const std::vector<RunClue>& clues) {
  std::vector<std::vector<std::size_t>> runs;
  for (const RunOfFiles& run : TellRunsApart(clues)) runs.push_back(run.files);
  return runs;
}
using Expected = std::vector<std::vector<std::size_t>>;

TEST(Runs, ByWhenTheyWereRecorded) {
  std::vector<RunClue> clues;
  for (std::int32_t r = 0; r < 6; ++r)
    clues.push_back({4, r % 4, r < 2 ? 0 : 132 * kDay, (r < 2 ? 0 : 132 * kDay) + kSecond});
  EXPECT_EQ(Runs(clues), (Expected{{2, 3, 4, 5}, {0, 1}})) << "that with most files first";
  const std::vector<RunOfFiles> told = TellRunsApart(clues);
  EXPECT_EQ(told[0].apart, "");
  EXPECT_EQ(told[1].apart, "recorded 131 days before");
}

TEST(Runs, ByNumberOfRanks) {
  const std::vector<RunClue> clues = {{4, 0, 0, 9}, {2, 0, 0, 9}, {4, 1, 0, 9}, {0, -1, 0, 9}};
  EXPECT_EQ(Runs(clues), (Expected{{0, 2, 3}, {1}})) << "who does not say belongs to the most";
  EXPECT_EQ(TellRunsApart(clues)[1].apart, "says the job has 2 ranks, not 4");
}

TEST(Runs, ARerunWithinMinutes) {
  const std::vector<RunClue> clues = {
      {2, 0, 0, kSecond}, {2, 1, 0, kSecond}, {2, 0, 60 * kSecond, 61 * kSecond}, {2, 1, 60 * kSecond, 61 * kSecond}};
  EXPECT_EQ(Runs(clues), (Expected{{0, 1}, {2, 3}}));
  EXPECT_EQ(TellRunsApart(clues)[1].apart, "recorded 59 s after");
}

RunClue Clue(std::int32_t rank, const std::string& path = "", const std::string& host = "", std::int64_t end_ns = 9) {
  RunClue clue{4, rank, 0, end_ns + rank};
  clue.path = path;
  clue.host = host;
  return clue;
}

// Four files of one job and two of another that was recorded at the same time.
TEST(Runs, ByWhatTheySayOfTheJob) {
  const auto mixed = [](auto&& other) {
    std::vector<RunClue> clues;
    for (std::int32_t i = 0; i < 6; ++i) {
      clues.push_back(Clue(i < 4 ? i : i - 2));
      if (i >= 4) other(clues.back());
    }
    return clues;
  };
  const Expected apart = {{0, 1, 2, 3}, {4, 5}};
  std::vector<RunClue> clues = mixed([](RunClue& clue) { clue.backend = "gloo"; });
  for (std::size_t i = 0; i < 4; ++i) clues[i].backend = "nccl";
  EXPECT_EQ(Runs(clues), apart);
  EXPECT_EQ(TellRunsApart(clues)[1].apart, "says its backend is gloo, not nccl");

  clues = mixed([](RunClue& clue) { clue.nccl_version = "2.21.5"; });
  for (std::size_t i = 0; i < 4; ++i) clues[i].nccl_version = "2.18.3";
  EXPECT_EQ(Runs(clues), apart);
  EXPECT_EQ(TellRunsApart(clues)[1].apart, "says NCCL is 2.21.5, not 2.18.3");

  clues = mixed([](RunClue& clue) { clue.groups = {{"7", {2, 3}}}; });
  for (std::size_t i = 0; i < 4; ++i) clues[i].groups = {{"0", {0, 1, 2, 3}}, {"7", {0, 1, 2, 3}}};
  EXPECT_EQ(Runs(clues), apart);
  EXPECT_EQ(TellRunsApart(clues)[1].apart, "has a process group of the ranks 2-3, which the others do not know");

  // One name for the parts of a group that was split, and ranks that number their groups by themselves.
  clues = {Clue(0), Clue(1), Clue(2), Clue(3)};
  for (std::size_t i = 0; i < 4; ++i) clues[i].groups = {{"1", i < 2 ? std::vector{0, 1} : std::vector{2, 3}}};
  EXPECT_EQ(Runs(clues), (Expected{{0, 1, 2, 3}}));
  for (std::int32_t i = 0; i < 4; ++i)
    clues[static_cast<std::size_t>(i)].groups = {{"3", i % 2 == 0 ? std::vector{i, i + 1} : std::vector{i ^ 2, i}},
                                                 {"4", i % 2 == 0 ? std::vector{i, i ^ 2} : std::vector{i - 1, i}}};
  for (RunClue& clue : clues)
    for (ToldGroup& group : clue.groups) std::sort(group.ranks.begin(), group.ranks.end());
  EXPECT_EQ(Runs(clues), (Expected{{0, 1, 2, 3}}));
}

TEST(Runs, TwoJobsAtTheSameTime) {
  std::vector<RunClue> clues = {Clue(0, "a/rank_0.json"), Clue(1, "a/rank_1.json"), Clue(2, "a/rank_2.json"),
                                Clue(3, "a/rank_3.json"), Clue(0, "b/rank_0.json"), Clue(1, "b/rank_1.json")};
  clues[4].end_ns = clues[5].end_ns = 7;
  EXPECT_EQ(Runs(clues), (Expected{{0, 1, 2, 3}, {4, 5}}));
  EXPECT_EQ(TellRunsApart(clues)[1].apart, "ranks 0-1 a second time, at the same time");
  // The paths do not tell: the hosts.
  for (RunClue& clue : clues) clue.path = "rank.json", clue.host = "node1";
  clues[4].host = clues[5].host = "node7";
  EXPECT_EQ(Runs(clues), (Expected{{0, 1, 2, 3}, {4, 5}}));
  EXPECT_EQ(TellRunsApart(clues)[1].apart, "ranks 0-1 a second time, at the same time, recorded on node7, not node1");
  // A directory per host is no other job.
  clues = {Clue(0, "n/rank_0.json"), Clue(1, "n/rank_1.json"), Clue(2, "m/rank_2.json"), Clue(3, "m/rank_3.json"),
           Clue(0, "old/rank_0.json")};
  clues[4].end_ns = 7;
  EXPECT_EQ(Runs(clues), (Expected{{0, 1, 2, 3}, {4}}));
}

// Ranks whose windows do not overlap are still ranks of one run; copies of a rank overlap.
TEST(Runs, OneRun) {
  EXPECT_EQ(Runs({{2, 0, 0, 9}, {2, 1, 60 * kSecond, 61 * kSecond}}), (Expected{{0, 1}}));
  EXPECT_EQ(Runs({{2, 0, 0, 9}, {2, 0, 0, 9}, {2, 1, 3, 9}}), (Expected{{0, 1, 2}}));
  EXPECT_EQ(Runs({{0, -1, INT64_MIN, INT64_MIN}}), (Expected{{0}}));
  EXPECT_EQ(Runs({{0, -1, INT64_MIN, INT64_MIN}, {0, -1, INT64_MAX, INT64_MAX}}), (Expected{{0}, {1}}));
}

}  // namespace
}  // namespace lockstep::ingest
