// Who held the others back once is named, with the time; what all do, what is short and what comes first is not.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/unit/analysis/synthetic_job.h"
#include "trace/file/strings.h"

namespace lockstep::test {
namespace {

constexpr std::int64_t kMs = 1'000'000;

std::vector<const analysis::Finding*> StallsIn(const analysis::Analysis& analysis) {
  std::vector<const analysis::Finding*> stalls;
  for (const analysis::Finding& finding : analysis.findings)
    if (finding.id == analysis::FindingId::kStallOnce) stalls.push_back(&finding);
  return stalls;
}

// 60 steps of 40 ms and of five collectives.
JobSpec With(std::function<std::int64_t(int step, int rank)> more_ns) {
  JobSpec spec;
  spec.compute = [more_ns = std::move(more_ns)](int step, int rank) { return 40 * kMs + more_ns(step, rank); };
  return spec;
}

std::string Headline(const Job& job) {
  const analysis::Analysis analysis = job.Analyze(false);
  const auto stalls = StallsIn(analysis);
  return stalls.size() == 1 ? stalls[0]->headline : std::to_string(stalls.size());
}
std::string Headline(const JobSpec& spec) { return Headline(Simulate(spec)); }

TEST(Stalls, OneOfOneRankIsTheVerdict) {
  // A fifth of it comes before each collective.
  const JobSpec spec = With([](int step, int rank) { return step == 30 && rank == 1 ? 7500 * kMs : 0; });
  const analysis::Analysis analysis = Simulate(spec).Analyze(false);
  ASSERT_EQ(StallsIn(analysis).size(), 1u) << analysis.verdict;
  const analysis::Finding& stall = *StallsIn(analysis)[0];
  EXPECT_EQ(&stall, &analysis.findings[0]);
  EXPECT_EQ(stall.rank, 1);
  EXPECT_FALSE(stall.saves_ns_per_step);
  EXPECT_TRUE(stall.headline.starts_with("Rank 1 held all back for ")) << stall.headline;
  EXPECT_NE(stall.headline.find("in step 30 ("), std::string::npos) << stall.headline;
  EXPECT_NE(stall.headline.find("of the recording): computing (CPU "), std::string::npos) << stall.headline;
  EXPECT_EQ(analysis.verdict, stall.headline);
}

TEST(Stalls, OfSeveralRanksTogether) {
  EXPECT_TRUE(Headline(With([](int step, int rank) {
                return step == 30 && rank >= 2 ? 7500 * kMs : 0;
              })).starts_with("Ranks 2 and 3 held all back for "));
}

TEST(Stalls, InARunWithoutSteps) {
  JobSpec spec = With([](int step, int rank) { return step == 30 && rank == 1 ? 7500 * kMs : 0; });
  spec.mark_steps = false;
  spec.blocking = true;
  const std::string headline = Headline(spec);
  EXPECT_TRUE(headline.starts_with("Rank 1 held all back for ")) << headline;
  EXPECT_NE(headline.find(" after the begin ("), std::string::npos) << headline;
}

TEST(Stalls, HealthyRunsHaveNone) {
  EXPECT_EQ(Headline(JobSpec{}), "0");
  // What all do at once holds nobody back.
  EXPECT_EQ(Headline(With([](int step, int) { return step == 30 ? 7500 * kMs : 0; })), "0");
  // A twentieth of the recording at most.
  EXPECT_EQ(Headline(With([](int step, int rank) { return step == 30 && rank == 1 ? 100 * kMs : 0; })), "0");
  // As in each step.
  EXPECT_EQ(Headline(With([](int, int rank) { return rank == 1 ? 400 * kMs : 0; })), "0");
  JobSpec first = With([](int step, int rank) { return step == 0 && rank == 1 ? 7500 * kMs : 0; });
  EXPECT_EQ(Headline(first), "0") << "a warm-up step";
}

TEST(Stalls, AStopIsSaid) {
  Job job = Simulate(With([](int step, int rank) { return step == 30 && rank == 1 ? 7500 * kMs : 0; }));
  schema::RankTables& t = job.ranks[1];
  if (t.processes.rows() == 0) t.processes.Append({.process = 0, .pid = 100});
  t.processes.pid[0] = 100;
  trace::StringInterner<schema::Strings, schema::StringBytes> strings(t.strings, t.string_bytes);
  const auto meta = [&](const char* key, const std::string& value) {
    t.meta.Append({.key = strings.Intern(key), .value = strings.Intern(value)});
  };
  const schema::TlStepRanks& steps = job.timeline.tables.step_ranks;
  const auto at = [&](std::int64_t step) {
    for (std::size_t i = 0; i < steps.rows(); ++i)
      if (steps.rank[i] == 1 && steps.index[i] == step) return std::to_string(steps.begin_ns[i]);
    return std::string();
  };
  meta("was_stopped.100", at(10) + " " + at(11) + ";" + at(30) + " " + at(31) + ";");
  const std::string headline = Headline(job);
  EXPECT_TRUE(headline.ends_with("of the recording): stopped by a signal or a debugger.")) << headline;
}

}  // namespace
}  // namespace lockstep::test
