#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "analysis/choose_findings.h"
#include "analysis/context.h"
#include "analysis/core/format.h"
#include "analysis/report/json.h"
#include "analysis/report/text.h"
#include "core/loss.h"
#include "tests/unit/analysis/synthetic_job.h"

namespace lockstep::test {
namespace {

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::size_t Columns(const std::string& line) {
  return static_cast<std::size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

JobSpec SlowRank5of8() {
  JobSpec spec;
  spec.ranks = 8;
  spec.ranks_per_node = 4;
  spec.transfer_ns = 1'500'000;
  spec.compute = [](int step, int rank) {
    return 330'000'000 + (step * 37 + rank * 101) % 17 * 100'000 + (rank == 5 ? 38'000'000 : 0);
  };
  return spec;
}

TEST(Format, ThreeDigitsAndUnits) {
  EXPECT_EQ(analysis::Duration(0), "0");
  EXPECT_EQ(analysis::Duration(999), "999 ns");
  EXPECT_EQ(analysis::Duration(3'100), "3.1 us");
  EXPECT_EQ(analysis::Duration(412'000'000), "412 ms");
  EXPECT_EQ(analysis::Duration(41'250'000), "41.2 ms");
  EXPECT_EQ(analysis::Duration(-2'000'000), "-2 ms");
  EXPECT_EQ(analysis::Duration(12'000'000'000), "12 s");
  EXPECT_EQ(analysis::Percent(41, 412), "10 %");
  EXPECT_EQ(analysis::Percent(1, 0), "-");
  EXPECT_EQ(analysis::Bytes(1'420'000'000), "1.42 GB");
  EXPECT_EQ(analysis::Count(1'842'113), "1 842 113");
  EXPECT_EQ(analysis::RankList({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10,11");
}

// LOCKSTEP_UPDATE_GOLDEN=1 writes it anew.
TEST(Text, Golden) {
  const std::string text =
      report::RenderText(Simulate(SlowRank5of8()).Analyze(), {.color = false, .unicode = true, .width = 100});
  const std::string path = std::string(LOCKSTEP_SOURCE_DIR) + "/tests/unit/analysis/slow_rank.golden.txt";
  if (std::getenv("LOCKSTEP_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ifstream file(path);
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(text, golden.str());
}

TEST(Text, FirstSentenceIsTheVerdictAndLinesFit) {
  for (const bool unicode : {true, false}) {
    const std::string text = report::RenderText(Simulate(SlowRank5of8()).Analyze(), {.unicode = unicode});
    const std::vector<std::string> lines = Lines(text);
    EXPECT_TRUE(lines[2].starts_with("  Rank 5 holds everyone back")) << lines[2];
    for (const std::string& line : lines) EXPECT_LE(Columns(line), 100u) << line;
    if (!unicode) {
      EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
    }
  }
}

TEST(Text, LinesFitAnyWidthAndNoWordIsBroken) {
  for (const int ranks : {1, 2, 8, 40}) {
    JobSpec spec = ranks < 6 ? JobSpec() : SlowRank5of8();
    spec.ranks = ranks;
    const analysis::Analysis analysis = Simulate(spec).Analyze();
    for (const unsigned width : {40u, 60u, 73u, 80u, 99u, 101u, 120u, 240u}) {
      const std::string text = report::RenderText(analysis, {.width = width});
      for (const std::string& line : Lines(text)) {
        const std::size_t first = std::min(line.find_first_not_of(' '), line.size());
        EXPECT_TRUE(Columns(line) <= width || line.find(' ', first) == std::string::npos) << width << ": " << line;
      }
      std::string whole, wanted;
      for (std::istringstream words(text); words >> wanted;) whole += wanted + " ";
      for (const analysis::Finding& finding : analysis.findings)
        EXPECT_NE(whole.find(finding.evidence + " "), std::string::npos) << width << ": " << finding.evidence;
      EXPECT_NE(whole.find(analysis.verdict + " "), std::string::npos) << width << ": " << text;
    }
  }
}

TEST(Text, ColourOnlyIfAsked) {
  const analysis::Analysis analysis = Simulate(SlowRank5of8()).Analyze();
  EXPECT_EQ(report::RenderText(analysis, {}).find('\x1b'), std::string::npos);
  EXPECT_NE(report::RenderText(analysis, {.color = true}).find('\x1b'), std::string::npos);
}

TEST(Text, SharedCoresComeFirst) {
  JobSpec spec;
  spec.allowed_cores = 2;
  const std::vector<std::string> lines = Lines(report::RenderText(Simulate(spec).Analyze(), {}));
  EXPECT_TRUE(lines[0].starts_with("4 ranks share 2 cores")) << lines[0];
  // One core each says nothing: mpirun binds every rank to its own.
  spec.allowed_cores = 1;
  EXPECT_TRUE(Lines(report::RenderText(Simulate(spec).Analyze(), {}))[0].starts_with("ddp_mpi"));
}

TEST(Text, DamagedTimesDrawNoEndlessBars) {
  analysis::Analysis analysis = Simulate({}).Analyze();
  for (analysis::RankRow& row : analysis.ranks) row.late_ns_median = INT64_MAX / 3;
  EXPECT_LT(report::RenderText(analysis, {}).size(), 100'000u);
}

TEST(Text, CoresThatAreTheRanksOwnAreNotShared) {
  const auto first_line = [](const std::vector<std::string>& cpus) {
    JobSpec spec;
    spec.allowed_cores = 1;
    Job job = Simulate(spec);
    auto& tables = job.timeline.tables;
    // Waited for, whoever had them.
    for (std::size_t i = 0; i < tables.rank_totals.rows(); ++i)
      tables.rank_totals.offcpu_ns[i] = (tables.rank_totals.end_ns[i] - tables.rank_totals.begin_ns[i]) / 2;
    for (std::size_t i = 0; i < cpus.size(); ++i) tables.ranks.allowed_cpus[i] = Intern(tables, cpus[i]);
    return Lines(report::RenderText(job.Analyze(), {}))[0];
  };
  EXPECT_TRUE(first_line({"0", "1", "2", "3"}).starts_with("ddp_mpi")) << first_line({"0", "1", "2", "3"});
  EXPECT_TRUE(first_line({"0", "1", "0", "1"}).starts_with("4 ranks share 2 cores"));
  EXPECT_TRUE(first_line({"0-1", "1-2", "2", "0"}).starts_with("4 ranks share 3 cores"));
  EXPECT_TRUE(first_line({"0-2,7", "0-2,7", "0-2,7", "0-2,7"}).starts_with("ddp_mpi"));
  // Not known: proof that they waited is enough.
  EXPECT_TRUE(first_line({}).starts_with("4 ranks share 1 core"));
  EXPECT_TRUE(first_line({"0", "1", "2", "damaged"}).starts_with("4 ranks share 1 core"));
}

TEST(Text, LargeJobsShowTheWorst) {
  JobSpec spec = SlowRank5of8();
  spec.ranks = 40;
  spec.steps = 12;
  const std::string text = report::RenderText(Simulate(spec).Analyze(), {});
  const std::vector<std::string> lines = Lines(text);
  const auto head = std::find_if(lines.begin(), lines.end(), [](const auto& l) { return l.starts_with("  RANKS"); });
  ASSERT_NE(head, lines.end());
  EXPECT_TRUE((head + 1)->starts_with("  5  node1")) << *(head + 1);
  EXPECT_TRUE((head + 6)->starts_with("  35 others within ")) << *(head + 6);
  for (const std::string& line : lines) EXPECT_LE(Columns(line), 100u) << line;
}

TEST(Text, LossesComeWithTheirRemedy) {
  Job job = Simulate({});
  AddLoss(job.timeline.tables, "RingFull", 1, 12);
  AddLoss(job.timeline.tables, "RingFull", 2, 30);
  const analysis::Analysis analysis = job.Analyze();
  EXPECT_TRUE(analysis.incomplete());
  const std::string text = report::RenderTrust(analysis, {});
  EXPECT_NE(text.find("records dropped because a thread's ring was full: 42 (ranks 1,2)"), std::string::npos) << text;
  EXPECT_NE(text.find("raise --ring-size"), std::string::npos);
}

TEST(Text, WhatCostsMoreThanThereIsIsLeftOutAndCounted) {
  const Job job = Simulate(SlowRank5of8());
  const analysis::AnalyzeOptions options = job.Options();
  const analysis::Context context(job.timeline, options);
  analysis::Analysis analysis = job.Analyze();
  const std::size_t before = analysis.findings.size();
  ASSERT_GT(before, 0u);
  analysis.findings[0].saves_ns_per_step = analysis.summary.terms.Sum();
  analysis::ChooseFindings(context, analysis);
  EXPECT_EQ(analysis.findings.size(), before);
  EXPECT_EQ(analysis.impossible_findings, 0);
  ++*analysis.findings[0].saves_ns_per_step;
  analysis::ChooseFindings(context, analysis);
  EXPECT_EQ(analysis.findings.size(), before - 1);
  EXPECT_EQ(analysis.impossible_findings, 1);
  const std::string text = report::RenderText(analysis, {});
  EXPECT_NE(text.find("1 finding left out"), std::string::npos) << text;
}

TEST(Text, EveryKindOfLossIsShown) {
  Job job = Simulate({});
  for (const LossInfo& info : kLosses) AddLoss(job.timeline.tables, info.name, 1, 7);
  const analysis::Analysis analysis = job.Analyze();
  report::TextOptions wide;
  wide.width = 10'000;
  const std::string text = report::RenderTrust(analysis, wide), verdict = report::RenderText(analysis, wide);
  const auto json = nlohmann::json::parse(report::RenderJson(analysis));
  ASSERT_EQ(json["losses"].size(), std::size(kLosses));
  for (const LossInfo& info : kLosses) {
    // Of what there is none nothing is counted.
    const char* count = std::string_view(info.sentence).starts_with("no ") ? " (rank 1)" : ": 7 (rank 1)";
    EXPECT_NE(text.find(std::string(info.sentence) + count), std::string::npos) << info.name;
    EXPECT_NE(verdict.find(info.sentence), std::string::npos) << info.name;
    const auto row = std::find_if(json["losses"].begin(), json["losses"].end(),
                                  [&](const auto& each) { return each["name"] == info.name; });
    ASSERT_NE(row, json["losses"].end()) << info.name;
    EXPECT_EQ((*row)["severity"], info.severity == Severity::kDataLoss ? "data_loss" : "notice");
  }
}

TEST(Text, DetailsOfOneLossAreOneLine) {
  analysis::Analysis analysis = Simulate({}).Analyze();
  analysis.losses.clear();
  for (const char* detail : {"kind 22", "kind 22", "kind 31", "kind 40", "kind 41", "kind 42"})
    analysis.losses.push_back({"GpuRecordUnknown", 1, 2, false, "GPU records of a kind that is not used", "", detail});
  report::TextOptions wide;
  wide.width = 10'000;
  EXPECT_NE(report::RenderTrust(analysis, wide)
                .find("not used: 12 (rank 1); kind 22; kind 31; kind 40; 2 more in analysis.json"),
            std::string::npos);
}

TEST(Text, LossesAreNamedAndNotesAreOneLine) {
  Job job = Simulate({});
  EXPECT_NE(report::RenderTrust(job.Analyze(), {}).find("nothing was lost or guessed"), std::string::npos);
  for (const LossInfo& info : kLosses) AddLoss(job.timeline.tables, info.name, 1, 7);
  const analysis::Analysis analysis = job.Analyze();
  for (const unsigned width : {100u, 200u}) {
    const std::string text = report::RenderText(analysis, {.width = width});
    std::size_t named = 0, notes = 0;
    for (const LossInfo& info : kLosses) notes += info.severity == Severity::kNotice;
    std::string_view noted;
    const std::vector<std::string> lines = Lines(text);
    for (const std::string& line : lines)
      if (line.find("noted: ") != std::string::npos) noted = line;
    ASSERT_FALSE(noted.empty()) << text;
    EXPECT_EQ(noted, lines.back()) << "one line";
    for (const LossInfo& info : kLosses) named += noted.find(info.sentence) != std::string_view::npos;
    EXPECT_NE(noted.find(std::to_string(notes - named) + " more"), std::string_view::npos) << noted;
    EXPECT_GE(named, width == 200 ? 2u : 1u);
  }
}

TEST(Text, ExplanationListsTheRowsBehind) {
  const analysis::Analysis analysis = Simulate(SlowRank5of8()).Analyze();
  const std::string text = report::RenderExplanation(analysis, 1, {});
  EXPECT_NE(text.find("others_wait_ns"), std::string::npos);
  EXPECT_EQ(Lines(text).size(), 6u + 20u) << "number, headline, evidence, action, blank, columns";
  EXPECT_EQ(report::RenderExplanation(analysis, 9, {}), "");
}

TEST(Text, WhatIsNotKnownBehindAFindingIsNoNumber) {
  analysis::Analysis analysis = Simulate(SlowRank5of8()).Analyze();
  analysis.findings[0].explain = {{"rank", "bytes"}, {{3, analysis::Evidence::OrUnknown(-1)}}, {}};
  EXPECT_NE(report::RenderExplanation(analysis, 1, {}).find("\n     3      -\n"), std::string::npos)
      << report::RenderExplanation(analysis, 1, {});
  const auto json = nlohmann::json::parse(report::RenderJson(analysis));
  EXPECT_EQ(json["findings"][0]["explain"]["rows"][0], nlohmann::json::parse("[3, null]"));
}

TEST(Format, NumbersWithTheirNouns) {
  using analysis::CountOf, analysis::Mean, analysis::Ordinal, analysis::PluralOfMean;
  EXPECT_EQ(Mean(12.34), "12.3");
  EXPECT_EQ(Mean(1'234.5), "1 235");
  EXPECT_EQ(Mean(999.7), "1 000");
  EXPECT_EQ(PluralOfMean(1.0, "kernel"), "1 kernel");
  EXPECT_EQ(PluralOfMean(1.001, "kernel"), "1 kernel");
  EXPECT_EQ(PluralOfMean(0.5, "kernel"), "0.5 kernels");
  EXPECT_EQ(PluralOfMean(120, "kernel"), "120 kernels");
  // Rounded once: 1154.7 is 1.15, 1155 is 1.16.
  EXPECT_EQ(analysis::MeanDuration(1'154.7), "1.15 us");
  EXPECT_EQ(analysis::MeanDuration(0.3), "0");
  EXPECT_EQ(analysis::MeanBytes(1'154.7), "1.15 kB");
  EXPECT_EQ(analysis::MeanBytes(999.7), "1 kB");
  EXPECT_EQ(CountOf(3, "spans that overlap"), "3 spans that overlap");
  EXPECT_EQ(CountOf(1, "spans that overlap"), "spans that overlap: 1");
  EXPECT_EQ(CountOf(1, "no steps marked"), "no steps marked");
  const auto ordinals = {"1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "103rd", "111th"};
  std::vector<std::string> made;
  for (const std::int64_t n : {1, 2, 3, 4, 11, 12, 13, 21, 22, 103, 111}) made.push_back(Ordinal(n));
  EXPECT_TRUE(std::equal(made.begin(), made.end(), ordinals.begin(), ordinals.end()));
}

TEST(Json, HoldsEveryKeyOfTheContract) {
  const auto json = nlohmann::json::parse(report::RenderJson(Simulate(SlowRank5of8()).Analyze()));
  EXPECT_EQ(json["schema"], "lockstep.analysis/1");
  const auto has = [](const nlohmann::json& object, const std::vector<std::string>& keys) {
    for (const std::string& key : keys) EXPECT_TRUE(object.contains(key)) << key;
  };
  const std::vector<std::string> kTerms = {
      "compute_ns",         "blocked_ns",      "exposed_wait_ns", "exposed_transfer_ns",
      "exposed_unsplit_ns", "exposed_copy_ns", "idle_ns"};
  has(json, {"run", "trust", "summary", "ranks", "steps", "collectives", "arrivals", "groups", "gaps", "buckets",
             "overlap", "stragglers", "counterfactual", "findings"});
  has(json["run"],
      {"ranks", "ranks_expected", "ranks_missing", "ranks_ended_early", "nodes", "steps", "classes", "window"});
  has(json["trust"], {"clock_error_ns_p50", "clock_error_ns_max", "events", "dropped", "unmatched_collectives",
                      "clock_violations", "overhead_fraction", "agent_cpu_fraction"});
  has(json["summary"],
      {"step_ns_mean", "comm_ns", "hidden_comm_ns", "overlap_fraction", "overlap_low", "overlap_high"});
  has(json["summary"], kTerms);
  has(json["ranks"][0], {"rank", "node", "span_ns", "comm_ns", "overlap_ns", "overlap_fraction", "exposed_comm_ns",
                         "copy_ns", "offcpu_ns", "last_fraction", "straggler_score", "straggler_interval"});
  has(json["ranks"][0], kTerms);
  has(json["steps"][0], {"index", "complete", "warmup", "ranks"});
  has(json["steps"][0]["ranks"][0], {"rank", "begin_ns", "end_ns", "comm_ns", "overlap_ns", "phases"});
  has(json["steps"][0]["ranks"][0], kTerms);
  has(json["collectives"][0],
      {"op", "comm", "group", "bytes", "count", "transfer_ns_median", "wait_ns_median", "algbw", "busbw", "censored"});
  has(json["arrivals"][0], {"rank", "last", "ties", "charge_ns"});
  has(json["stragglers"][0], {"rank", "score", "interval", "p_value", "kind", "cause", "saves_ns_per_step"});
  has(json["findings"][0], {"id", "headline", "evidence", "action", "saves_ns_per_step"});
  EXPECT_TRUE(json["trust"]["overhead_fraction"].is_null()) << "not measured is null, never 0";
  EXPECT_EQ(json["trust"]["clock_error_ns_max"], 500);
  std::int64_t sum = 0;
  for (const std::string& key : kTerms) sum += json["summary"][key].get<std::int64_t>();
  EXPECT_EQ(json["summary"]["step_ns_mean"], sum);
}

TEST(Json, SameInputSameBytesWhateverTheThreads) {
  const Job job = Simulate(SlowRank5of8());
  analysis::AnalyzeOptions one = job.Options(), many = job.Options();
  one.jobs = 1;
  many.jobs = 7;
  EXPECT_EQ(report::RenderJson(analysis::Analyze(job.timeline, one).value()),
            report::RenderJson(analysis::Analyze(job.timeline, many).value()));
}

TEST(Json, UnknownIsNull) {
  Job job = Simulate({});
  auto& t = job.timeline.tables;
  t.clock = {};
  for (auto& v : t.ranks.agent_cpu_ns) v = -1;
  for (auto& v : t.rank_totals.offcpu_ns) v = -1;
  const auto json = nlohmann::json::parse(report::RenderJson(job.Analyze()));
  EXPECT_TRUE(json["trust"]["clock_error_ns_max"].is_null());
  EXPECT_TRUE(json["trust"]["agent_cpu_fraction"].is_null());
  EXPECT_TRUE(json["ranks"][0]["offcpu_ns"].is_null());
}

// A percentage of a program that ran for milliseconds is one of nothing.
TEST(Trust, AgentsTimeIsAShareOfWhatIsThere) {
  Job job = Simulate(SlowRank5of8());
  auto& ranks = job.timeline.tables.ranks;
  const auto agent = [&](std::int64_t app_ns, std::int64_t agent_ns) {
    for (auto& v : ranks.app_cpu_ns) v = app_ns;
    for (auto& v : ranks.agent_cpu_ns) v = agent_ns;
    const analysis::Analysis analysis = job.Analyze(false);
    const std::string text = report::RenderText(analysis, {});
    const std::size_t at = text.find("agent ");
    return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_EQ(agent(500'000, 2'000'000), "agent 16 ms CPU");
  EXPECT_EQ(agent(124'999'999, 2'000'000), "agent 16 ms CPU");
  EXPECT_EQ(agent(125'000'000, 2'000'000), "agent 1.6 % CPU");
  EXPECT_EQ(agent(0, 0), "agent 0 CPU");
  EXPECT_EQ(agent(-1, -1), "") << "not recorded";
}

TEST(Windows, OneStepIsNamedAsOne) {
  for (const auto& [end_step, wanted] :
       {std::pair{1, "Recorded: step 0 of each rank."}, std::pair{3, "Recorded: steps 0-2 of each rank."}}) {
    Job job = Simulate(SlowRank5of8());
    AddMeta(job.timeline.tables, "recording", "steps");
    job.timeline.tables.windows.Append({.first_step = 0, .end_step = end_step, .ranks = 8});
    const std::vector<std::string> remarks = job.Analyze().remarks;
    EXPECT_NE(std::find(remarks.begin(), remarks.end(), wanted), remarks.end()) << wanted;
  }
}

}  // namespace
}  // namespace lockstep::test
