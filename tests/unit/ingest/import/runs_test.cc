// Which of the given files are of one run.

#include "ingest/runs.h"

#include <gtest/gtest.h>

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

// Ranks whose windows do not overlap are still ranks of one run; copies of a rank overlap.
TEST(Runs, OneRun) {
  EXPECT_EQ(Runs({{2, 0, 0, 9}, {2, 1, 60 * kSecond, 61 * kSecond}}), (Expected{{0, 1}}));
  EXPECT_EQ(Runs({{2, 0, 0, 9}, {2, 0, 0, 9}, {2, 1, 3, 9}}), (Expected{{0, 1, 2}}));
  EXPECT_EQ(Runs({{0, -1, INT64_MIN, INT64_MIN}}), (Expected{{0}}));
  EXPECT_EQ(Runs({{0, -1, INT64_MIN, INT64_MIN}, {0, -1, INT64_MAX, INT64_MAX}}), (Expected{{0}, {1}}));
}

}  // namespace
}  // namespace lockstep::ingest
