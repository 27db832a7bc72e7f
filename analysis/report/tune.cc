#include "analysis/report/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "analysis/core/format.h"
#include "analysis/report/text_lines.h"
#include "analysis/report/text_table.h"
#include "core/printed.h"
#include "core/wrap.h"

namespace lockstep::report {
namespace {

using tune::Candidate;
using tune::Estimate;
using tune::Promise;
using tune::Row;
using tune::Verdict;

std::string Share(double part) { return fmt::format("{:.1f} %", 100 * part); }

// Of two or three runs an interval may reach beyond everything: there is none then.
std::string Span(double low, double high) {
  return low > -1 ? fmt::format("{:.1f} to {:.1f} %", 100 * low, 100 * high) : "";
}

const Estimate* EstimateOf(const Row& row) {
  return row.confirmed ? &*row.confirmed : row.screened ? &*row.screened : nullptr;
}

std::string Promised(const Candidate& candidate) {
  if (!candidate.promise) return "";
  const Promise& promise = *candidate.promise;
  if (promise.bound) return fmt::format("at most {}", Share(promise.high));
  return fmt::format("{} ({})", Share(promise.gain), Span(promise.low, promise.high));
}

std::string WhyNotTried(const Candidate& candidate, const Row& row) {
  return !candidate.dropped.empty() ? candidate.dropped : !row.why.empty() ? row.why : "the budget";
}

std::string Words(const Candidate& candidate, const Row& row) {
  const auto because = [&](const char* text) { return row.why.empty() ? text : fmt::format("{}: {}", text, row.why); };
  switch (row.verdict) {
    case Verdict::kNotTried:
      return "not tried: " + WhyNotTried(candidate, row);
    case Verdict::kFailed:
      return because("refused, it fails");
    case Verdict::kHung:
      return because("refused, it hangs");
    case Verdict::kChanged:
      return because("refused, results change");
    case Verdict::kNotApplied:
      return because("not applied");
    case Verdict::kNoSign:
      return row.screened && row.screened->gain > 0 ? "not among the best" : "no sign of a gain";
    case Verdict::kBetter:
      return "better";
    case Verdict::kNoGain:
      return "no gain";
    case Verdict::kUndecided:
      return because("undecided");
  }
  return "";
}

// "DDP bucket_cap_mb 10 and OMP_NUM_THREADS 2"
std::string Names(const TuneReport& report) {
  std::string names;
  for (std::size_t i = 0; i < report.best.size(); ++i)
    names += (i == 0 ? "" : i + 1 == report.best.size() ? " and " : ", ") + report.candidates[report.best[i]].label();
  return names;
}

std::string Answer(const TuneReport& report) {
  if (!report.trouble.empty()) return fmt::format("The job failed as it is, and tuning ended: {}.", report.trouble);
  if (report.best.empty()) {
    if (!report.decided)
      return "Nothing is recommended: the budget was spent before an answer was certain. More --budget, or fewer "
             "--steps.";
    return report.candidates.empty() ? "Nothing that tune can change applies to this job."
                                     : "Leave it as it is: nothing that was tried is better beyond noise.";
  }
  const Estimate& total = *report.total;
  return fmt::format("{} {} a step {} shorter ({}, {}).", Names(report), report.best.size() == 1 ? "makes" : "make",
                     Share(total.gain), Span(total.low, total.high),
                     analysis::Plural(static_cast<std::int64_t>(total.pairs), "pair") + " of runs");
}

std::string Checked(const TuneReport& report) {
  std::string text =
      report.unchecked.empty()
          ? "the first losses of every run were compared with those of the job as it is" +
                std::string(report.loss_noise > 0
                                ? fmt::format(" (which differ by {:.1g} from run to run)", report.loss_noise)
                                : "")
          : "not compared, " + report.unchecked;
  if (report.checked_by_command)
    text += "; --check passed in every run that was not refused";
  else if (!report.unchecked.empty())
    text += "; only exit codes were; --check CMD compares more";
  return text;
}

std::string Memory(std::int64_t bytes) {
  return bytes <= 0 ? "" : fmt::format("{:.0f} MiB", static_cast<double>(bytes) / (1 << 20));
}

nlohmann::ordered_json JsonOf(const Estimate& estimate) {
  return {{"gain", estimate.gain},
          {"low", std::isfinite(estimate.low) ? nlohmann::ordered_json(estimate.low) : nlohmann::ordered_json(nullptr)},
          {"high", estimate.high},
          {"pairs", estimate.pairs}};
}

// A row for each candidate; where a verdict in words does not fit beside the figures, it is below them.
std::string Candidates(const TuneReport& report, std::size_t width) {
  std::vector<TextColumn> columns = {{.head = "SETTING", .right = false, .lead = 0},
                                     {.head = "PROMISED", .lead = 2, .keep = 1},
                                     {.head = "MEASURED", .lead = 2},
                                     {.head = "INTERVAL", .lead = 2, .keep = 2},
                                     {.head = "PAIRS", .lead = 2, .keep = 0}};
  TextTable below(2, columns);
  columns.push_back({.head = "VERDICT", .right = false, .lead = 2, .sentence = true});
  TextTable beside(2, std::move(columns));
  std::vector<std::string> words;
  for (std::size_t i = 0; i < report.candidates.size(); ++i) {
    const Estimate* estimate = EstimateOf(report.rows[i]);
    std::vector<std::string> cells = {Printed(report.candidates[i].label()), Promised(report.candidates[i]),
                                      estimate == nullptr ? "" : Share(estimate->gain),
                                      estimate == nullptr ? "" : Span(estimate->low, estimate->high),
                                      estimate == nullptr ? "" : std::to_string(estimate->pairs)};
    words.push_back(Printed(Words(report.candidates[i], report.rows[i])));
    below.Add(cells);
    cells.push_back(words.back());
    beside.Add(std::move(cells));
  }
  TextTable::Laid laid = beside.Lay(width);
  if (!laid.left_out.empty()) {
    laid = below.Lay(width);
    for (std::size_t i = 0; i < words.size(); ++i) {
      laid.rows[i] += "\n" + WrapText("      ", "      ", words[i], width);
      laid.rows[i].pop_back();
    }
  }
  std::string text = laid.head + "\n";
  for (const std::string& row : laid.rows) text += row + "\n";
  if (!laid.left_out.empty()) text += "  " + NotShown(laid.left_out, width) + "\n";
  return text;
}

}  // namespace

std::string_view Name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kNotTried:
      return "not_tried";
    case Verdict::kFailed:
      return "failed";
    case Verdict::kHung:
      return "hung";
    case Verdict::kChanged:
      return "changed_results";
    case Verdict::kNotApplied:
      return "not_applied";
    case Verdict::kNoSign:
      return "no_sign";
    case Verdict::kBetter:
      return "better";
    case Verdict::kNoGain:
      return "no_gain";
    case Verdict::kUndecided:
      return "undecided";
  }
  return "";
}

std::string RenderTuneText(const TuneReport& report, const TextOptions& options) {
  const std::size_t width = options.terminal ? options.width : SIZE_MAX;
  const Glyphs glyphs = TextLines(options).glyphs();
  std::string text = fmt::format("{0} of the job in {1:.0f} s of {2:.0f} s {5} {3} {5} {4} a step as it is\n\n",
                                 analysis::Plural(static_cast<std::int64_t>(report.runs), "run"), report.elapsed_s,
                                 report.budget_s, analysis::Plural(report.ranks, "rank"),
                                 analysis::Duration(static_cast<std::int64_t>(report.step_ns)), glyphs.dot);
  text += "  " + Answer(report) + "\n";
  for (const std::size_t i : report.best) {
    const Candidate& candidate = report.candidates[i];
    text += fmt::format("  {} for good: {}\n", glyphs.arrow,
                        Printed(tune::WithValue(candidate.setting->permanent, candidate.value)));
    if (!candidate.setting->caution.empty()) text += fmt::format("    note: {}\n", candidate.setting->caution);
    if (candidate.setting->results == tune::Results::kRounding)
      text += "    note: sums are made in another order, so results may differ by rounding\n";
    if (candidate.setting->memory && report.candidate_peak_bytes[i] > 0)
      text += fmt::format("    memory of the largest process: {}, before {}\n", Memory(report.candidate_peak_bytes[i]),
                          Memory(report.peak_bytes));
  }
  if (!report.candidates.empty()) {
    text += "\n" + Candidates(report, width);
    text +=
        "\n  Parts of a step, + is shorter. \"better\" and \"no gain\" are of runs made to confirm; other intervals "
        "are of a "
        "few runs.\n";
  }
  text += "  Results: " + Checked(report) + ".\n";
  if (!report.not_replayed.empty()) text += "  Nothing is promised: " + Printed(report.not_replayed) + ".\n";
  return text;
}

nlohmann::ordered_json RenderTuneJson(const TuneReport& report) {
  nlohmann::ordered_json json;
  json["schema"] = "lockstep.tune/1";
  json["command"] = report.command;
  json["directory"] = report.directory;
  json["ranks"] = report.ranks;
  json["step_ns"] = std::llround(report.step_ns);
  json["steps_per_run"] = report.steps_per_run;
  json["budget_s"] = report.budget_s;
  json["elapsed_s"] = report.elapsed_s;
  json["runs"] = report.runs;
  json["decided"] = report.decided;
  json["trouble"] = report.trouble;
  json["not_replayed"] = report.not_replayed;
  json["losses_not_compared"] = report.unchecked;
  json["loss_noise"] = report.loss_noise;
  json["peak_bytes"] = report.peak_bytes;
  json["best"] = nlohmann::ordered_json::array();
  for (const std::size_t i : report.best) json["best"].push_back(i);
  json["total"] = report.total ? JsonOf(*report.total) : nlohmann::ordered_json(nullptr);
  nlohmann::ordered_json& all = json["candidates"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < report.candidates.size(); ++i) {
    const Candidate& candidate = report.candidates[i];
    const Row& row = report.rows[i];
    nlohmann::ordered_json one;
    one["setting"] = candidate.setting->name;
    one["value"] = candidate.value;
    one["verdict"] = Name(row.verdict);
    one["why"] = row.verdict == Verdict::kNotTried ? WhyNotTried(candidate, row) : row.why;
    one["promised"] = nullptr;
    if (candidate.promise && candidate.promise->bound)
      one["promised"] = {{"at_most", candidate.promise->high}};
    else if (candidate.promise)
      one["promised"] = {
          {"gain", candidate.promise->gain}, {"low", candidate.promise->low}, {"high", candidate.promise->high}};
    one["screened"] = row.screened ? JsonOf(*row.screened) : nlohmann::ordered_json(nullptr);
    one["confirmed"] = row.confirmed ? JsonOf(*row.confirmed) : nlohmann::ordered_json(nullptr);
    one["screening_logs"] = row.screening_logs;
    one["confirming_logs"] = row.confirming_logs;
    one["peak_bytes"] = report.candidate_peak_bytes[i];
    one["for_good"] = tune::WithValue(candidate.setting->permanent, candidate.value);
    one["caution"] = candidate.setting->caution;
    one["results"] = candidate.setting->results == tune::Results::kSame ? "same" : "rounding";
    all.push_back(std::move(one));
  }
  return json;
}

}  // namespace lockstep::report
