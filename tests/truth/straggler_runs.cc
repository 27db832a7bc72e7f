// Synthetic runs through make_run, merge and analysis in one process: a description per line in, what the
// analysis says of stragglers per line out. Thousands of runs in minutes; bench/stragglers/run asks.
//
//   straggler_runs DIR < requests > answers
//   straggler_runs --rules                    every rule of the analysis, as JSON
//
// A request: {"id": any, "text": "ranks 8\n...", "base": "directory that the text's files are relative to"}, or with
// "run": "run directory" instead of the text. With "vary": [["kRule", value], ...] the run is analysed again with each
// of these rules changed; a line {"rule", "value", "same" or "answer"} for each comes before the answer (bench/rules).
// DIR is scratch space, best on a tmpfs.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "analysis/analyze.h"
#include "make_run/run_directory.h"
#include "merge/merge.h"
#include "rule_reads.h"
#include "rule_table.h"

namespace {

using lockstep::analysis::Analysis;
using nlohmann::json;

json Describe(const lockstep::merge::Timeline& timeline, const Analysis& analysis) {
  json answer;
  const auto& steps = timeline.tables.steps;
  std::vector<std::int64_t> step_ns;
  for (std::size_t i = 0; i < steps.rows(); ++i)
    if (steps.complete[i] && !steps.warmup[i] && steps.step_ns[i] >= 0) step_ns.push_back(steps.step_ns[i]);
  answer["step_ns"] = step_ns;
  answer["verdict"] = analysis.verdict;
  answer["remarks"] = analysis.remarks;
  answer["stragglers"] = json::array();
  for (const lockstep::analysis::Straggler& s : analysis.stragglers) {
    json row = {{"rank", s.rank},
                {"score", s.score},
                {"p", s.p_value},
                {"kind", NameOf(s.kind)},
                {"cause", NameOf(s.cause)},
                {"saves_ns", s.saves_ns},
                {"low_ns", s.saves_interval_ns.first},
                {"high_ns", s.saves_interval_ns.second}};
    if (s.onset_step) row["onset"] = *s.onset_step;
    answer["stragglers"].push_back(std::move(row));
  }
  answer["findings"] = json::array();
  for (const lockstep::analysis::Finding& f : analysis.findings) {
    json row = {{"id", KindOf(f.id).name},
                {"rank", f.rank >= 0 ? json(f.rank) : json()},
                {"headline", f.headline},
                {"evidence", f.evidence},
                {"action", f.action},
                {"hosts", f.hosts},
                {"one_of_hosts", f.one_of_hosts},
                {"or_another_host", f.or_another_host}};
    if (f.network_bytes_per_s)
      row["network_bytes_per_s"] = {f.network_bytes_per_s->first, f.network_bytes_per_s->second};
    if (f.saves_ns_per_step) row["saves_ns"] = *f.saves_ns_per_step;
    answer["findings"].push_back(std::move(row));
  }
  answer["eps_max_ns"] = analysis.trust.clock_error_ns_max.value_or(-1);
  std::int64_t ties = 0, last = 0;
  for (const lockstep::analysis::ArrivalRow& row : analysis.arrivals) {
    ties = std::max(ties, row.ties);
    last += row.last;
  }
  answer["ties"] = ties;
  answer["last"] = last;
  return answer;
}

using Timeline = lockstep::merge::Timeline;

lockstep::Result<Timeline> Merged(const std::string& run) {
  lockstep::merge::MergeOptions merge;
  merge.run_dir = run;
  merge.jobs = 1;
  merge.write = false;
  return lockstep::merge::MergeRun(merge);
}

lockstep::Result<json> Analyzed(const lockstep::Result<Timeline>& merged) {
  if (!merged.ok()) return merged.error();
  lockstep::analysis::AnalyzeOptions options;
  options.jobs = 1;
  LS_TRY(const Analysis analysis, lockstep::analysis::Analyze(merged.value(), options));
  return Describe(merged.value(), analysis);
}

json AnswerOf(const lockstep::Result<json>& result) {
  return result.ok() ? result.value() : json{{"error", result.error().what + ": " + result.error().where}};
}

// One line for each rule that is changed. Where the analysis did not read it, nothing changes.
void Vary(const json& changes, const std::string& run, const lockstep::Result<Timeline>& merged, const json& answer) {
  const std::span<const lockstep::rules::Rule> table = lockstep::rules::Table();
  const std::vector<bool> read = lockstep::rules::ReadBy([&] { AnswerOf(Analyzed(Merged(run))); });
  for (const json& change : changes) {
    const std::string name = change.at(0);
    const auto rule = std::ranges::find(table, name, &lockstep::rules::Rule::name);
    if (rule == table.end()) continue;
    json line = {{"rule", name}, {"value", change.at(1)}, {"same", true}};
    if (read[static_cast<std::size_t>(rule - table.begin())]) {
      // An analysis that does not end under an absurd rule ends the process.
      alarm(20);
      rule->set(change.at(1));
      const bool of_merge = rule->list == "match" || rule->list == "clock";
      const json changed = AnswerOf(of_merge ? Analyzed(Merged(run)) : Analyzed(merged));
      rule->set(rule->value);
      alarm(0);
      line["read"] = true;
      if (changed != answer) line.erase("same"), line["answer"] = changed;
    }
    std::cout << line.dump() << std::endl;
  }
}

lockstep::Result<json> Answer(const json& request, const std::string& directory) {
  std::string run = request.value("run", "");
  if (run.empty()) {
    const std::string text = request.at("text"), base = request.value("base", ".");
    LS_CHECK(lockstep::make_run::MakeRun(text, base + "/text", directory, {}, 1));
    run = directory;
  }
  const lockstep::Result<Timeline> merged = Merged(run);
  LS_TRY(json answer, Analyzed(merged));
  if (request.contains("vary")) Vary(request["vary"], run, merged, answer);
  return answer;
}

void PrintRules() {
  for (const lockstep::rules::Rule& rule : lockstep::rules::Table())
    std::cout << json{{"list", rule.list}, {"name", rule.name},     {"type", rule.type}, {"unit", rule.unit},
                      {"why", rule.why},   {"source", rule.source}, {"test", rule.test}, {"value", rule.value}}
                     .dump()
              << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: straggler_runs DIR < requests > answers, or straggler_runs --rules\n");
    return 2;
  }
  if (std::string_view(argv[1]) == "--rules") {
    PrintRules();
    return 0;
  }
  const std::string directory = std::string(argv[1]) + "/" + std::to_string(getpid());
  bool failed = false;
  for (std::string line; std::getline(std::cin, line);) {
    const json request = json::parse(line, nullptr, false);
    if (!request.is_object() || !(request.contains("text") || request.contains("run"))) {
      std::fprintf(stderr, "straggler_runs: not a request: %.80s\n", line.c_str());
      return 2;
    }
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
    const lockstep::Result<json> answer = Answer(request, directory);
    json out = AnswerOf(answer);
    failed |= !answer.ok();
    out["id"] = request.value("id", json());
    std::cout << out.dump() << std::endl;
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  return failed ? 1 : 0;
}
