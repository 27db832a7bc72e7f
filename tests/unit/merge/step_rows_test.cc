// The ranks' rows of their steps, joined to one table.

#include "merge/timeline/step_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

namespace lockstep::test {
namespace {

using Rows = std::vector<merge::RankPassResult>;

// Ranks in any order, some without steps, some with steps that others lack, and columns that some ranks have zeros in.
Rows RandomRanks(std::mt19937& random, std::size_t ranks) {
  const auto below = [&](int n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
  Rows all(ranks);
  std::vector<std::int32_t> numbers;
  for (std::size_t r = 0; r < ranks; ++r) numbers.push_back(static_cast<std::int32_t>(r));
  std::shuffle(numbers.begin(), numbers.end(), random);
  for (std::size_t r = 0; r < ranks; ++r) {
    if (below(5) == 0) continue;
    const bool copies = below(2) == 0;
    std::int64_t index = below(3) - 1;
    for (std::int64_t n = below(9); n > 0; --n, index += 1 + (below(4) == 0))
      all[r].step_ranks.Append({.index = index,
                                .rank = numbers[r],
                                .begin_ns = below(1000),
                                .complete = static_cast<std::uint8_t>(below(2)),
                                .compute_ns = below(3),
                                .exposed_copy_ns = copies ? below(9) : 0,
                                .cpu_ns = -1});
  }
  return all;
}

TEST(StepRows, AreAllOfThemInOrder) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    Rows ranks = RandomRanks(random, 1 + random() % 12);
    std::vector<std::tuple<std::int64_t, std::int32_t, std::size_t, std::size_t>> order;
    for (std::size_t r = 0; r < ranks.size(); ++r)
      for (std::size_t i = 0; i < ranks[r].step_ranks.rows(); ++i)
        order.emplace_back(ranks[r].step_ranks.index[i], ranks[r].step_ranks.rank[i], r, i);
    std::sort(order.begin(), order.end());
    schema::TlStepRanks expected;
    for (const auto& [index, rank, r, i] : order) expected.Append(ranks[r].step_ranks.Get(i));
    if (trial % 2 == 0)
      for (merge::RankPassResult& rank : ranks) merge::LeaveOutZeros(rank.step_ranks);
    const schema::TlStepRanks joined = merge::StepRankTable(ranks);
    std::vector<std::vector<std::int64_t>> wanted;
    expected.ForEachColumn([&](const auto&, const auto& values) { wanted.emplace_back(values.begin(), values.end()); });
    std::size_t column = 0;
    joined.ForEachColumn([&](const schema::ColumnInfo& info, const auto& values) {
      EXPECT_EQ(std::vector<std::int64_t>(values.begin(), values.end()), wanted[column++]) << info.name;
    });
  }
}

TEST(StepRows, OfNoRankAreNone) {
  Rows none;
  EXPECT_EQ(merge::StepRankTable(none).rows(), 0u);
  Rows without(3);
  EXPECT_EQ(merge::StepRankTable(without).rows(), 0u);
  EXPECT_EQ(merge::StepPhaseTable(without).rows(), 0u);
}

TEST(StepRows, ZerosAreLeftOutButForWhoseRowsTheyAre) {
  schema::TlStepRanks rows;
  rows.Append({.index = 0, .rank = 0, .compute_ns = 5, .cpu_ns = -1});
  merge::LeaveOutZeros(rows);
  EXPECT_EQ(rows.rows(), 1u);
  EXPECT_EQ(rows.rank.size(), 1u);
  EXPECT_EQ(rows.compute_ns.size(), 1u);
  EXPECT_EQ(rows.cpu_ns.size(), 1u);
  EXPECT_EQ(rows.copy_ns.size(), 0u);
}

}  // namespace
}  // namespace lockstep::test
