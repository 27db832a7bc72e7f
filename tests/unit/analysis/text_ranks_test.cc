#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "analysis/report/text_tables.h"
#include "tests/unit/analysis/synthetic_job.h"

namespace lockstep::test {
namespace {

constexpr std::int64_t kStepNs = 10'000'000;

// Ranks in steps of 10 ms, on clocks that agree to 1 us.
analysis::Analysis RanksInSteps(int ranks) {
  analysis::Analysis analysis;
  analysis.summary.per_step = true;
  analysis.summary.terms.compute_ns = kStepNs;
  analysis.trust.clock_error_ns_max = 1'000;
  for (int rank = 0; rank < ranks; ++rank) {
    analysis::RankRow row;
    row.rank = rank;
    row.node = "node";
    row.late_ns_median = 0;
    row.terms.compute_ns = kStepNs;
    row.step_terms = row.terms;
    analysis.ranks.push_back(row);
  }
  return analysis;
}

std::vector<std::string> TableOf(const analysis::Analysis& analysis) {
  report::TextLines out({.unicode = false, .width = 100});
  report::RanksTable(analysis, out);
  std::vector<std::string> lines;
  std::istringstream stream(out.Take());
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Of rank 0: glyphs in its bar.
std::ptrdiff_t Bar(const analysis::Analysis& analysis) {
  const std::string row = TableOf(analysis).at(1);
  return std::count(row.begin(), row.end(), '#');
}

std::ptrdiff_t BarOf(std::int64_t late_ns, std::int64_t other_ns = 0) {
  analysis::Analysis analysis = RanksInSteps(2);
  analysis.ranks[0].late_ns_median = late_ns;
  analysis.ranks[1].late_ns_median = other_ns;
  return Bar(analysis);
}

TEST(Ranks, ABarIsAShareOfTheStep) {
  EXPECT_EQ(BarOf(5), 0) << "whoever else is earlier";
  EXPECT_EQ(BarOf(99'000), 0);
  EXPECT_EQ(BarOf(100'000), 1) << "one hundredth";
  EXPECT_EQ(BarOf(500'000), 5);
  EXPECT_EQ(BarOf(1'000'000), 10) << "a tenth";
  EXPECT_EQ(BarOf(8'000'000), 10);
  EXPECT_EQ(BarOf(4'000'000, 8'000'000), 5) << "of the latest, if that is later than a tenth of the step";
  EXPECT_EQ(BarOf(-5'000'000, 8'000'000), 0);
  EXPECT_EQ(BarOf(INT64_MAX, INT64_MAX), 10);
}

TEST(Ranks, NoBarForWhatClocksCannotTell) {
  analysis::Analysis analysis = RanksInSteps(2);
  analysis.ranks[0].late_ns_median = 500'000;
  analysis.trust.clock_error_ns_max = 200'000;
  EXPECT_EQ(Bar(analysis), 0);
  EXPECT_NE(TableOf(analysis)[1].find("500 us"), std::string::npos) << "the number stands";
  analysis.trust.clock_error_ns_max = 100'000;
  EXPECT_EQ(Bar(analysis), 5);
  analysis.trust.clock_error_ns_max = {};
  EXPECT_EQ(Bar(analysis), 0) << "how far they are apart is not known";
}

TEST(Ranks, WithoutStepsABarIsAShareOfTheTimeFromOneCollectiveToTheNext) {
  analysis::Analysis analysis = RanksInSteps(2);
  analysis.summary.per_step = false;
  analysis.ranks[0].late_ns_median = 50'000;
  EXPECT_EQ(Bar(analysis), 0) << "there are none";
  analysis.arrivals.resize(2);
  analysis.arrivals[0].collectives = 10;
  EXPECT_EQ(Bar(analysis), 5) << "of 1 ms each";
}

TEST(Ranks, WhomAFindingNamesIsThere) {
  analysis::Analysis analysis = RanksInSteps(4'096);
  // The latest, of whom nothing is said.
  for (int rank = 100; rank < 110; ++rank) analysis.ranks[static_cast<std::size_t>(rank)].late_ns_median = 900'000;
  analysis.findings.emplace_back().rank = 2'731;
  analysis.findings.emplace_back().rank = -1;
  analysis.findings.emplace_back().rank = 9'999;  // Of which there is no row.
  std::vector<std::string> lines = TableOf(analysis);
  EXPECT_TRUE(lines.at(1).starts_with("  2731  node ")) << lines[1];
  EXPECT_EQ(lines.at(6), "  4 091 others");
  // More than there are rows.
  for (int rank = 200; rank < 240; ++rank) analysis.findings.emplace_back().rank = rank;
  lines = TableOf(analysis);
  EXPECT_TRUE(lines.at(16).starts_with("  215  node ")) << lines[16];
  EXPECT_EQ(lines.at(17), "  also named: 216-239, 2731");
  EXPECT_EQ(lines.at(18), "  4 055 others");
  for (int rank = 300; rank < 3'000; rank += 2) analysis.findings.emplace_back().rank = rank;
  lines = TableOf(analysis);
  EXPECT_TRUE(lines.at(17).starts_with("  also named: 216-239, 300, 302, ")) << lines[17];
  const auto cut = std::find_if(lines.begin(), lines.end(), [](const auto& l) { return l.ends_with(" in all)"); });
  ASSERT_NE(cut, lines.end());
  EXPECT_TRUE(cut->ends_with(", .. (1 375 in all)")) << *cut;
  EXPECT_EQ((cut + 1)->substr(0, 15), "  2 705 others");
}

TEST(Ranks, AllThatFitAreThere) {
  analysis::Analysis analysis = RanksInSteps(16);
  analysis.findings.emplace_back().rank = 3;
  const std::vector<std::string> lines = TableOf(analysis);
  ASSERT_GE(lines.size(), 17u);
  EXPECT_TRUE(lines[16].starts_with("  15  node ")) << lines[16];
}

}  // namespace
}  // namespace lockstep::test
