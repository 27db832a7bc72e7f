// What is not known is said to be unknown: work of GPUs that nothing recorded, sizes that a trace does not tell.

#include <gtest/gtest.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "analysis/report/json.h"
#include "analysis/report/text.h"
#include "tests/unit/analysis/synthetic_job.h"

namespace lockstep::test {
namespace {

JobSpec Four() {
  JobSpec spec;
  spec.transfer_ns = 2'000'000;
  spec.blocking = true;
  return spec;
}

std::string TextOf(const analysis::Analysis& analysis) {
  return report::RenderText(analysis, {.color = false, .unicode = true, .width = 100});
}

// The rank's line of the ranks' table, as words.
std::vector<std::string> RankLine(const std::string& text, const std::string& rank) {
  std::istringstream lines(text.substr(text.find("  RANKS")));
  std::string line;
  while (std::getline(lines, line))
    if (line.starts_with("  " + rank + "  ")) break;
  std::istringstream words(line);
  return {std::istream_iterator<std::string>(words), {}};
}

TEST(UnrecordedGpus, TimeOfTheHostIsNoCompute) {
  Job job = Simulate(Four());
  for (int rank = 0; rank < 4; ++rank) AddLoss(job.timeline.tables, "GpuNotCaptured", rank, 1);
  const analysis::Analysis analysis = job.Analyze();
  const std::string text = TextOf(analysis);
  const std::string step = text.substr(text.find("  STEP"), text.find("  RANKS") - text.find("  STEP"));
  EXPECT_NE(step.find("? not known (GPU not recorded)"), std::string::npos) << step;
  EXPECT_EQ(step.find("█ compute"), std::string::npos) << step;
  EXPECT_EQ(step.find("hidden under compute"), std::string::npos) << step;
  for (const char* rank : {"0", "1", "2", "3"}) {
    const std::vector<std::string> line = RankLine(text, rank);
    ASSERT_GE(line.size(), 5u) << text;
    EXPECT_EQ(line[2], "-") << "compute";
    EXPECT_NE(line[3], "-") << "transfers of the hosts are known";
    EXPECT_EQ(line[5], "-") << "idle";
  }
  const auto json = nlohmann::json::parse(report::RenderJson(analysis));
  for (const auto& terms : {json["summary"], json["ranks"][2], json["steps"][5]["ranks"][1]}) {
    for (const char* key : {"compute_ns", "idle_ns", "exposed_copy_ns"}) EXPECT_TRUE(terms[key].is_null()) << key;
    EXPECT_GT(terms["exposed_transfer_ns"], 0);
  }
  EXPECT_TRUE(json["summary"]["step_ns_mean"].is_number());
  EXPECT_EQ(analysis.verdict.find("othing found"), std::string::npos) << analysis.verdict;
}

TEST(UnrecordedGpus, OfOtherRanksItIsKnown) {
  Job job = Simulate(Four());
  AddLoss(job.timeline.tables, "GpuNotCaptured", 1, 1);
  const std::string text = TextOf(job.Analyze());
  EXPECT_EQ(RankLine(text, "1")[2], "-");
  EXPECT_NE(RankLine(text, "0")[2], "-");
  const auto json = nlohmann::json::parse(report::RenderJson(job.Analyze()));
  EXPECT_TRUE(json["summary"]["compute_ns"].is_null()) << "a mean over ranks of which one is not known";
  EXPECT_TRUE(json["ranks"][0]["compute_ns"].is_number());
}

// A kernel whose size the trace does not tell moved something; an MPI call of no bytes did not.
TEST(UnknownSizes, AreNotZero) {
  for (const bool gpu : {true, false}) {
    Job job = Simulate(Four());
    auto& t = job.timeline.tables.collectives;
    for (std::size_t i = 0; i < t.rows(); ++i) {
      t.bytes[i] = 0;
      t.mode[i] = gpu ? schema::Code(CollectiveMode::kGpu) : t.mode[i];
    }
    const analysis::Analysis analysis = job.Analyze();
    ASSERT_FALSE(analysis.collectives.empty());
    EXPECT_EQ(analysis.collectives[0].bytes.has_value(), !gpu);
    const auto json = nlohmann::json::parse(report::RenderJson(analysis));
    EXPECT_EQ(json["collectives"][0]["bytes"].is_null(), gpu);
    EXPECT_EQ(TextOf(analysis).find(" 0 B ") == std::string::npos, gpu);
  }
}

// Of collectives without all members it is not the end that is uncertain.
TEST(MissingMembers, AreSaidToBeMissing) {
  Job job = Simulate(Four());
  for (auto& expected : job.timeline.tables.collectives.expected) expected = 8;
  const analysis::Analysis analysis = job.Analyze();
  ASSERT_FALSE(analysis.collectives.empty());
  EXPECT_EQ(analysis.collectives[0].partial, analysis.collectives[0].count);
  EXPECT_EQ(analysis.collectives[0].censored, 0);
  const std::string text = TextOf(analysis);
  EXPECT_NE(text.find("lack members)"), std::string::npos) << text;
  EXPECT_EQ(text.find("end unknown"), std::string::npos) << text;
}

}  // namespace
}  // namespace lockstep::test
