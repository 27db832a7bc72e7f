#include "analysis/run/listed_cells.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>

#include "analysis/report/json.h"
#include "tests/unit/analysis/synthetic_job.h"

namespace lockstep::test {
namespace {

constexpr std::size_t kMost = 2'000, kMostNamed = 100'000;

using Ranks = std::vector<std::int32_t>;

Ranks From(std::int32_t first, std::int32_t end) {
  Ranks ranks(static_cast<std::size_t>(end - first));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

// So many ranks, of which nothing is found; the last one is the latest.
analysis::Analysis JobOfRanks(int ranks) {
  analysis::Analysis analysis;
  for (int rank = 0; rank < ranks; ++rank) {
    analysis::RankRow row;
    row.rank = rank;
    if (ranks > 1) row.late_ns_median = 10 * rank - 5;
    row.terms.compute_ns = 1'000 - rank;
    analysis.ranks.push_back(row);
  }
  return analysis;
}

Ranks Listed(const analysis::Analysis& analysis, int ranks, std::size_t steps) {
  std::map<std::int32_t, std::size_t> cells_of;
  for (int rank = 0; rank < ranks; ++rank) cells_of[rank] = steps;
  return analysis::ListedRanks(cells_of, analysis, kMost, kMostNamed);
}

void Name(int rank, analysis::Analysis& analysis) { analysis.findings.emplace_back().rank = rank; }

TEST(ListedRanks, OfManyCellsThoseOfTheLatestIfNoneIsNamed) {
  for (const auto& [ranks, steps, first] : {std::tuple{1, 2'000, 0},
                                            {1, 3'000, 0},  // One rank is always there.
                                            {2, 1'000, 0},
                                            {2, 1'001, 1},
                                            {2, 5'000, 1},
                                            {8, 300, 2},
                                            {512, 60, 479},
                                            {2'000, 1, 0},
                                            {4'096, 2, 3'096},
                                            {4'096, 2'000, 4'095}}) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks, " << steps << " steps");
    EXPECT_EQ(Listed(JobOfRanks(ranks), ranks, static_cast<std::size_t>(steps)), From(first, ranks));
  }
}

TEST(ListedRanks, NamedOnesComeFirst) {
  analysis::Analysis analysis = JobOfRanks(8);
  Name(3, analysis);
  EXPECT_EQ(Listed(analysis, 8, 900), (Ranks{3, 7}));
  Name(-1, analysis);
  Name(0, analysis);
  EXPECT_EQ(Listed(analysis, 8, 900), (Ranks{0, 3})) << "a third does not fit";
  for (const int rank : {1, 2, 6}) Name(rank, analysis);
  EXPECT_EQ(Listed(analysis, 8, 900), (Ranks{0, 1, 2, 3, 6})) << "as many as are named";
  for (const int rank : {4, 5, 7}) Name(rank, analysis);
  EXPECT_EQ(Listed(analysis, 8, 900), From(0, 8));
}

// Half of a large job may be late: the file is still one that can be read.
TEST(ListedRanks, OfVeryManyNamedOnesThoseThatAreNamedFirst) {
  analysis::Analysis analysis = JobOfRanks(4'096);
  for (int rank = 4'000; rank > 2'000; --rank) Name(rank, analysis);
  EXPECT_EQ(Listed(analysis, 4'096, 2'000), From(3'951, 4'001)) << "100 000 cells";
  EXPECT_EQ(Listed(analysis, 4'096, 200'000), Ranks{4'000});
}

// A run without totals of its ranks has cells, but no rows of ranks; a rank that is named may have no cell.
TEST(ListedRanks, SomeWhateverElseIsKnown) {
  analysis::Analysis analysis;
  EXPECT_EQ(Listed(analysis, 3, 1'500), Ranks{0});
  Name(17, analysis);
  EXPECT_EQ(Listed(analysis, 3, 1'500), Ranks{0});
  EXPECT_EQ(Listed(analysis, 0, 0), Ranks{});
}

TEST(ListedSteps, AllThatFit) {
  EXPECT_TRUE(analysis::ListedSteps({}, {}, 10).empty());
  EXPECT_EQ(analysis::ListedSteps({5, -1, 7}, {}, 3), (std::vector<std::size_t>{0, 1, 2}));
}

TEST(ListedSteps, OfMoreTheLongestAndEveryKth) {
  for (const std::size_t all : {101u, 150u, 1'000u, 100'003u}) {
    SCOPED_TRACE(all);
    std::vector<std::int64_t> lengths(all, 1'000);
    lengths[1] = -1;
    for (std::size_t i = 0; i < 10; ++i) lengths[all - 1 - 3 * i] = 5'000 + static_cast<std::int64_t>(i);
    const std::size_t median = 8;
    const std::vector<std::size_t> listed = analysis::ListedSteps(lengths, median, 100);
    EXPECT_LE(listed.size(), 100u);
    EXPECT_GE(listed.size(), 50u) << "as many as a sample of even distances allows";
    EXPECT_TRUE(std::is_sorted(listed.begin(), listed.end()));
    EXPECT_TRUE(std::binary_search(listed.begin(), listed.end(), median));
    for (std::size_t i = 0; i < 10; ++i)
      EXPECT_TRUE(std::binary_search(listed.begin(), listed.end(), all - 1 - 3 * i)) << "an outlier, " << i;
    // Of the others those at even distances.
    std::vector<std::size_t> others, expected;
    const auto is_other = [&](std::size_t step) { return step != median && lengths[step] < 5'000; };
    std::copy_if(listed.begin(), listed.end(), std::back_inserter(others), is_other);
    std::vector<std::size_t> of_all(all);
    std::iota(of_all.begin(), of_all.end(), std::size_t{0});
    std::erase_if(of_all, [&](std::size_t step) { return !is_other(step); });
    const std::size_t k = (of_all.size() + 88) / 89;
    for (std::size_t i = 0; i < of_all.size(); i += k) expected.push_back(of_all[i]);
    EXPECT_EQ(others, expected);
  }
  EXPECT_EQ(analysis::ListedSteps({3, 2, 1}, {}, 0), std::vector<std::size_t>{});
  EXPECT_EQ(analysis::ListedSteps({3, 2, 1}, 2, 1), std::vector<std::size_t>{2});
}

JobSpec SlowRank5(int steps) {
  JobSpec spec;
  spec.ranks = 8;
  spec.steps = steps;
  spec.compute = [](int step, int rank) {
    return 330'000'000 + (step * 37 + rank * 101) % 17 * 100'000 + (rank == 5 ? 38'000'000 : 0);
  };
  return spec;
}

// A file that is read as a whole grows with what was found, not with ranks times steps.
TEST(Steps, OfManyCellsThoseOfNamedRanksAreThere) {
  const Job job = Simulate(SlowRank5(260));
  analysis::AnalyzeOptions options = job.Options();
  options.max_step_cells = 100'000;
  const analysis::Analysis whole = analysis::Analyze(job.timeline, options).value();
  EXPECT_FALSE(whole.truncated);
  const analysis::Analysis analysis = job.Analyze();
  ASSERT_EQ(analysis.stragglers.size(), 1u);
  const auto json = nlohmann::json::parse(report::RenderJson(analysis));
  EXPECT_TRUE(json["truncated"].get<bool>());
  ASSERT_EQ(json["steps"].size(), whole.steps.size()) << "every step is there, with its length";
  for (std::size_t i = 0; i < whole.steps.size(); ++i) {
    EXPECT_EQ(json["steps"][i]["step_ns"], *whole.steps[i].step_ns);
    ASSERT_EQ(whole.steps[i].ranks.size(), 8u);
    const auto& cells = json["steps"][i]["ranks"];
    ASSERT_EQ(cells.size(), 7u) << "those of as many ranks as fit";
    const auto cell = std::find_if(cells.begin(), cells.end(), [](const auto& each) { return each["rank"] == 5; });
    ASSERT_NE(cell, cells.end());
    EXPECT_EQ((*cell)["compute_ns"], whole.steps[i].ranks[5].terms.compute_ns);
  }
  EXPECT_EQ(json["ranks"].size(), 8u);
  const auto small = nlohmann::json::parse(report::RenderJson(Simulate(SlowRank5(240)).Analyze()));
  EXPECT_FALSE(small["truncated"].get<bool>());
  EXPECT_EQ(small["steps"][3]["ranks"].size(), 8u);
}

TEST(Steps, OfManyStepsSomeAreThere) {
  const Job job = Simulate(SlowRank5(60));
  analysis::AnalyzeOptions options = job.Options();
  options.max_steps = 20;
  const analysis::Analysis analysis = analysis::Analyze(job.timeline, options).value();
  EXPECT_TRUE(analysis.truncated);
  EXPECT_LE(analysis.steps.size(), 20u);
  EXPECT_GE(analysis.steps.size(), 10u);
  EXPECT_EQ(std::count_if(analysis.steps.begin(), analysis.steps.end(),
                          [&](const auto& step) { return step.index == analysis.summary.median_step; }),
            1);
  for (const analysis::StepRow& step : analysis.steps) EXPECT_EQ(step.ranks.size(), 8u);
}

}  // namespace
}  // namespace lockstep::test
