// lockstep whatif: how long a step would take if something were different, from a replay of the recorded steps.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/analyze.h"
#include "analysis/context.h"
#include "analysis/core/format.h"
#include "analysis/replay/questions/what_if.h"
#include "analysis/replayed/replayed_run.h"
#include "analysis/report/text.h"
#include "analysis/report/text_table.h"
#include "cli/input/open_run.h"
#include "cli/options/command.h"
#include "cli/output/out.h"
#include "cli/output/write_file.h"
#include "merge/merge.h"

namespace lockstep::cli {
namespace {

using replay::Answer;
using replay::Question;
using replay::RecordedRun;
using replay::WhatIf;

struct WhatIfFlags : ReadFlags {
  std::string run, json;
  std::vector<std::string> calibrate;
  std::vector<double> caps_mb;
  double first_mb = 1, bandwidth = 1, latency = 1;
  std::vector<std::string> without;
  std::vector<std::size_t> ranks, prefetch;
  std::string overlap;
  bool without_stragglers = false, perfect_schedule = false;
  bool free_communication = false, no_overlap = false, one_bucket = false, together = false, equal_ranks = false;
};

std::uint64_t Bytes(double mebibytes) { return static_cast<std::uint64_t>(std::min(mebibytes * (1 << 20), 1e18)); }

struct Asked {
  std::string run_dir;
  std::vector<std::int32_t> stragglers;  // Those that the analysis names, if requested or nothing else is.
};

bool ChangesNetwork(const WhatIfFlags& flags) { return flags.bandwidth != 1 || flags.latency != 1; }

bool AsksAnything(const WhatIfFlags& flags) {
  return flags.free_communication || flags.no_overlap || flags.one_bucket || ChangesNetwork(flags) ||
         !flags.without.empty() || !flags.caps_mb.empty() || !flags.ranks.empty() || !flags.prefetch.empty() ||
         !flags.overlap.empty() || flags.without_stragglers || flags.perfect_schedule || flags.equal_ranks;
}

Result<std::unique_ptr<RecordedRun>> ReadNamed(const std::string& name, const WhatIfFlags& flags,
                                               Asked* asked = nullptr) {
  LS_TRY(merge::MergeOptions merge, MergeOptionsOf({name}, flags));
  return WithRun(merge, flags.quiet,
                 [&](const merge::Timeline& timeline, Progress& progress) -> Result<std::unique_ptr<RecordedRun>> {
                   analysis::AnalyzeOptions options;
                   options.jobs = flags.jobs;
                   options.replay = false;
                   const analysis::Context context(timeline, options);
                   if (asked != nullptr) asked->run_dir = timeline.run_dir;
                   // What one rank by itself can answer does not depend on others.
                   if (asked != nullptr && context.ranks().size() > 1)
                     if (std::optional<Error> why = analysis::WhyNotReplayed(context)) return *why;
                   // One rank has no straggler to name: the question itself says so.
                   const bool named = flags.without_stragglers || !AsksAnything(flags);
                   if (asked == nullptr || !named || context.ranks().size() < 2) {
                     if (asked != nullptr && flags.without_stragglers) asked->stragglers = context.ranks();
                     return analysis::ReadStepsToReplay(context, true);
                   }
                   // With its replay, which names those for which nobody is seen to wait.
                   options.replay = true;
                   ShowPasses(progress, options);
                   LS_TRY(const analysis::Analysis analysis, analysis::Analyze(timeline, options));
                   for (const analysis::Straggler& straggler : analysis.stragglers)
                     asked->stragglers.push_back(straggler.rank);
                   if (asked->stragglers.empty() && flags.without_stragglers)
                     return Error{ErrorCode::kUnsupported, "the analysis names no straggler in this run", merge.run_dir,
                                  "--without-rank R asks about a rank of your own choice"};
                   return analysis::ReadStepsToReplay(context, true);
                 });
}

// The questions that were asked or, if there were none, those that most users have.
std::vector<Question> Questions(const WhatIfFlags& flags, const WhatIf& what_if,
                                const std::vector<std::int32_t>& without, const std::vector<std::int32_t>& stragglers) {
  constexpr std::size_t kMostAlone = 4;
  std::vector<Question> questions;
  const auto add = [&](Question::Kind kind) -> Question& {
    questions.emplace_back();
    questions.back().kind = kind;
    return questions.back();
  };
  const bool any = AsksAnything(flags), network = ChangesNetwork(flags);
  if (flags.free_communication || !any) add(Question::kFreeCommunication);
  if (network || !any) {
    Question& question = add(Question::kNetwork);
    question.bandwidth = any ? flags.bandwidth : 2;
    question.latency = flags.latency;
  }
  if (flags.no_overlap || flags.overlap == "off" || !any) add(Question::kNoOverlap);
  if (flags.overlap == "on") add(Question::kOverlap);
  if (flags.perfect_schedule || !any) add(Question::kPerfectSchedule);
  if (flags.equal_ranks || !any) add(Question::kEqualRanks);
  if (!without.empty()) add(Question::kWithoutRanks).ranks = without;
  // What each of several costs, where nothing else was asked.
  if (!any && stragglers.size() > 1)
    for (std::size_t i = 0; i < std::min(kMostAlone, stragglers.size()); ++i)
      add(Question::kWithoutRanks).ranks = {stragglers[i]};
  if (!stragglers.empty()) add(Question::kWithoutRanks).ranks = stragglers;
  for (const std::size_t depth : flags.prefetch) add(Question::kPrefetch).depth = depth;
  for (const std::size_t ranks : flags.ranks) add(Question::kMoreRanks).rank_count = ranks;
  std::vector<double> caps = flags.caps_mb;
  const bool buckets = what_if.buckets().has_value();
  if (!any && buckets) caps = {1, 4, 10, 25, 50};
  for (const double cap : caps) {
    // More than the gradients' bytes means one bucket, and is reported once.
    if (!any && Bytes(cap) + Bytes(flags.first_mb) > what_if.buckets()->total_bytes()) continue;
    Question& question = add(Question::kBucketCap);
    question.first_bytes = Bytes(std::min(cap, flags.first_mb));
    question.cap_bytes = Bytes(cap);
  }
  if (flags.one_bucket || (!any && buckets)) {
    Question& question = add(Question::kBucketCap);
    question.first_bytes = question.cap_bytes = UINT64_MAX;
  }
  if (flags.together && questions.size() > 1) {
    Question all;
    all.kind = Question::kTogether;
    all.together = std::move(questions);
    return {all};
  }
  return questions;
}

struct Unanswered {
  std::string question, why, what_to_do;
};

// Null if there is no interval: of too few steps, and of steps that are all alike, which tell of no spread.
using Interval = std::optional<std::pair<std::int64_t, std::int64_t>>;
bool HasWidth(const Interval& interval) { return interval && interval->first < interval->second; }
nlohmann::ordered_json Low(const Interval& interval) {
  return HasWidth(interval) ? nlohmann::ordered_json(interval->first) : nlohmann::ordered_json(nullptr);
}
nlohmann::ordered_json High(const Interval& interval) {
  return HasWidth(interval) ? nlohmann::ordered_json(interval->second) : nlohmann::ordered_json(nullptr);
}
std::string Text(const Interval& interval) {
  if (!interval) return "too few steps";
  if (!HasWidth(interval)) return "all steps alike";
  const std::string low = analysis::Duration(interval->first), high = analysis::Duration(interval->second);
  return low == high ? "all at " + low : fmt::format("{:>10} - {:>10}", low, high);
}

nlohmann::ordered_json AsJson(const WhatIf& what_if, const std::vector<Answer>& answers,
                              const std::vector<Unanswered>& unanswered) {
  nlohmann::ordered_json json;
  json["schema"] = "lockstep.whatif/1";
  json["steps"] = what_if.run().steps.size();
  json["measured_step_ns"] = what_if.measured_step_ns();
  json["replayed_step_ns"] = what_if.replayed_step_ns();
  json["self_error"] = what_if.self_error();
  json["notes"] = what_if.run().notes;
  json["answers"] = nlohmann::ordered_json::array();
  for (const Answer& answer : answers)
    json["answers"].push_back({{"question", answer.question},
                               {"step_ns", answer.step_ns},
                               {"gain_ns", answer.gain_ns},
                               {"low_ns", Low(answer.step_interval_ns)},
                               {"high_ns", High(answer.step_interval_ns)},
                               {"gain_low_ns", Low(answer.gain_interval_ns)},
                               {"gain_high_ns", High(answer.gain_interval_ns)},
                               {"extrapolated", answer.extrapolated},
                               {"limit", answer.limit},
                               {"try", answer.try_it},
                               {"caveats", answer.caveats}});
  json["unanswered"] = nlohmann::ordered_json::array();
  for (const Unanswered& each : unanswered)
    json["unanswered"].push_back({{"question", each.question}, {"why", each.why}, {"do", each.what_to_do}});
  return json;
}

// "+1.2%"; of what rounds to nothing without a sign.
std::string Change(std::int64_t part, std::int64_t whole) {
  const std::string text =
      fmt::format("{:+.1f}%", 100 * static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(1, whole)));
  return text == "+0.0%" || text == "-0.0%" ? "0.0%" : text;
}

std::string AsText(const WhatIf& what_if, const std::vector<Answer>& answers,
                   const std::vector<Unanswered>& unanswered) {
  const std::vector<std::int64_t>& steps = what_if.run().steps;
  const std::string which = steps.front() == steps.back() ? fmt::format(" ({})", steps.front())
                                                          : fmt::format(" ({}-{})", steps.front(), steps.back());
  const auto many = [](std::size_t n, const char* noun) {
    return analysis::Plural(static_cast<std::int64_t>(n), noun);
  };
  const bool whole = what_if.run().whole_window;
  const std::string ranks = many(what_if.run().ranks.size(), "rank");
  std::string text =
      fmt::format("{} takes {}, replayed {} ({} {:.2f} % off)\n\n",
                  whole ? fmt::format("All that was recorded of {}", ranks)
                        : fmt::format("{} of {} replayed{}: a step", many(steps.size(), "step"), ranks, which),
                  analysis::Duration(what_if.measured_step_ns()), analysis::Duration(what_if.replayed_step_ns()),
                  whole ? "which is" : "steps are", 100 * what_if.self_error());
  for (const std::string& note : what_if.run().notes) text.insert(text.size() - 1, out::Format("  note: {}\n", note));
  constexpr std::string_view kUnchanged = "as recorded, replayed";
  report::TextTable table(0, {{.head = "if", .right = false, .lead = 0, .sentence = true},
                              {.head = whole ? "time" : "step", .width = 10, .lead = 2},
                              {.head = "gain", .width = 10, .lead = 2, .keep = 2},
                              {.width = 7, .lead = 2, .keep = 3},
                              {.head = "95 % of means", .width = 23, .lead = 2, .keep = 1}});
  // What the gains are of: each step below is this one less its gain.
  table.Add({std::string(kUnchanged), analysis::Duration(what_if.replayed_step_ns())});
  for (const Answer& answer : answers)
    table.Add({Printed(answer.question), analysis::Duration(answer.step_ns), analysis::Duration(answer.gain_ns),
               Change(answer.gain_ns, what_if.replayed_step_ns()), Text(answer.step_interval_ns)});
  // Elsewhere an answer is one line, for other programs.
  const report::TextOptions options = report::TextOptions::ForFile(STDOUT_FILENO);
  const std::size_t width = options.terminal ? options.width : SIZE_MAX;
  const report::TextTable::Laid laid = table.Lay(width);
  text += laid.head + "\n" + laid.rows[0] + "\n";
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const Answer& answer = answers[i];
    text += laid.rows[i + 1] + "\n";
    if (answer.extrapolated) text += "    extrapolated: beyond what was measured\n";
    if (!answer.limit.empty()) text += out::Format("    then limited by: {}\n", answer.limit);
    if (!answer.try_it.empty()) text += out::Format("    try: {}\n", answer.try_it);
    for (const std::string& caveat : answer.caveats) text += out::Format("    note: {}\n", caveat);
  }
  if (!laid.left_out.empty()) text += "  " + report::NotShown(laid.left_out, width) + "\n";
  for (const Unanswered& each : unanswered) {
    text += out::Format("{}: not answered, {}\n", each.question, each.why);
    if (!each.what_to_do.empty()) text += out::Format("    try: {}\n", each.what_to_do);
  }
  return text;
}

Result<int> RunWhatIf(const WhatIfFlags& flags) {
  Asked asked;
  std::vector<std::int32_t> without;
  for (const std::string& text : flags.without) {
    LS_TRY(const std::vector<std::int32_t> ranks, ParseRanks(text, "--without-rank"));
    without.insert(without.end(), ranks.begin(), ranks.end());
  }
  LS_TRY(auto run, ReadNamed(flags.run, flags, &asked));
  std::vector<std::unique_ptr<RecordedRun>> calibration;
  for (const std::string& name : flags.calibrate) {
    LS_TRY(auto other, ReadNamed(name, flags));
    calibration.push_back(std::move(other));
  }
  LS_TRY(const WhatIf what_if, WhatIf::Make(std::move(run), std::move(calibration)));
  std::vector<Answer> answers;
  std::vector<Unanswered> unanswered;
  std::optional<Error> first_error;
  for (const Question& question : Questions(flags, what_if, without, asked.stragglers)) {
    Result<Answer> answer = what_if.Ask(question);
    if (answer.ok()) {
      answers.push_back(std::move(answer).value());
      continue;
    }
    // A question that this run cannot answer must not prevent the other answers.
    if (answer.error().code != ErrorCode::kUnsupported) return answer.error();
    unanswered.push_back({what_if.Name(question), answer.error().what, answer.error().hint});
    if (!first_error) first_error = answer.error();
  }
  if (answers.empty() && first_error) {
    if (!flags.json.empty() && flags.json != "-")
      LS_CHECK(WriteOrShow(flags.json, JsonText(AsJson(what_if, answers, unanswered)), ShowJson,
                           "name another file with --json"));
    Error error = *first_error;
    if (unanswered.size() > 1)
      error.what = fmt::format("none of the {} questions can be answered: {}", unanswered.size(), error.what);
    if (error.where.empty()) error.where = asked.run_dir;
    return error;
  }
  if (flags.json != "-") ShowLines(AsText(what_if, answers, unanswered));
  if (!flags.json.empty())
    LS_CHECK(WriteOrShow(flags.json, JsonText(AsJson(what_if, answers, unanswered)), ShowJson,
                         "name another file with --json"));
  return kOk;
}

}  // namespace

void AddWhatIf(CLI::App& root, Chosen& chosen) {
  CLI::App* app =
      root.add_subcommand("whatif", "Predict the step time under a change, by replaying the recorded steps");
  app->footer(
      "Examples:\n"
      "  lockstep whatif                          the usual questions, on the latest run\n"
      "  lockstep whatif RUN --bucket-cap-mb 4 10 --calibrate OTHER\n"
      "  lockstep whatif RUN --without-rank 3     what does rank 3 cost?\n"
      "Of a run without steps all that was recorded is replayed. Other changes of the job are not predicted.");
  auto flags = std::make_shared<WhatIfFlags>();
  app->add_option("run", flags->run, "Run directory (default: the latest run), or traces: a file or a directory")
      ->type_name("RUN");
  app->add_flag("--free-communication", flags->free_communication, "Transfers take no time; late ranks stay late");
  app->add_option("--bandwidth", flags->bandwidth, "Multiply the network's bandwidth by this")->check(AboveZero());
  app->add_option("--latency", flags->latency, "Multiply the network's latency by this")->check(NotNegative());
  app->add_flag("--no-overlap", flags->no_overlap, "Non-blocking collectives move only when they are waited for");
  app->add_option("--overlap", flags->overlap,
                  "on: blocking reductions are posted where they are, and waited for after the last; off: --no-overlap")
      ->check(CLI::IsMember({"on", "off"}));
  app->add_flag("--perfect-schedule", flags->perfect_schedule,
                "The best order of communication that was found on the same network");
  app->add_option("--prefetch", flags->prefetch, "Parameters (FSDP) are gathered this many units before their use")
      ->type_name("UNITS");
  app->add_option("--ranks", flags->ranks, "Extrapolate to this many ranks with the same work each")
      ->type_name("N")
      ->check(AboveZero());
  app->add_flag("--without-stragglers", flags->without_stragglers,
                "The work of all ranks that lockstep analyze names takes as long as on the others");
  app->add_flag("--equal-ranks", flags->equal_ranks, "The work of each step is spread evenly over the ranks");
  app->add_option("--without-rank", flags->without, "The work of these ranks takes as long as on the others")
      ->type_name("0-3,7");
  app->add_option("--bucket-cap-mb", flags->caps_mb, "Gradients in buckets of this many MiB")->check(AboveZero());
  app->add_option("--first-bucket-mb", flags->first_mb, "Limit of the first bucket in MiB")
      ->check(AboveZero())
      ->capture_default_str();
  app->add_flag("--one-bucket", flags->one_bucket, "All gradients in one bucket");
  app->add_flag("--together", flags->together, "Answer all given changes together instead of one by one");
  app->add_option("--calibrate", flags->calibrate,
                  "Other runs of the same job, with other buckets: their transfers count too");
  app->add_option("--json", flags->json, "Write the answers to this file, - for stdout");
  AddReadFlags(*app, *flags);
  app->callback([&chosen, flags] { chosen = [flags] { return RunWhatIf(*flags); }; });
}

}  // namespace lockstep::cli
