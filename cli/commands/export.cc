// lockstep export: a run as a file of another tool.

#include "export/export.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "analysis/analyze.h"
#include "analysis/core/format.h"
#include "cli/commands/merge_command.h"
#include "cli/input/found.h"
#include "cli/input/open_run.h"
#include "cli/options/command.h"
#include "cli/output/out.h"
#include "merge/merge.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using exporters::EventKind;

struct ExportFlags : RunFlags {
  std::string format = "perfetto", output, steps, ranks, min_dur, budget, clock = "auto";
  std::size_t flows = 200;
  bool split = false, no_findings = false;
};

struct Unit {
  std::string_view name;
  double factor;
};

// "5us", "200MB"; a number without a unit is in the first unit whose factor is 1.
Result<std::int64_t> ParseQuantity(std::string_view text, const std::vector<Unit>& units, const std::string& flag,
                                   const char* example) {
  const Error bad{ErrorCode::kUsage, "'" + std::string(text) + "' is not a quantity", flag, flag + " " + example};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number >= 0)) return bad;
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  for (const Unit& known : units)
    if (unit == known.name && number * known.factor < 9e18) return static_cast<std::int64_t>(number * known.factor);
  return bad;
}

Status FillOptions(const ExportFlags& flags, exporters::ExportOptions& options) {
  options.format = exporters::FindFormat(flags.format);
  if (options.format->make == nullptr)
    return Error{ErrorCode::kUnsupported, "this lockstep was built without " + flags.format, "--format",
                 std::string(options.format->missing)};
  LS_TRY(const StepRange steps, ParseSteps(flags.steps));
  options.first_step = steps.first;
  options.last_step = steps.last;
  if (!flags.ranks.empty()) {
    LS_TRY(options.ranks, ParseRanks(flags.ranks, "--ranks"));
  }
  if (!flags.min_dur.empty()) {
    LS_TRY(options.least_ns, ParseQuantity(flags.min_dur, {{"", 1}, {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}},
                                           "--min-dur", "5us"));
  }
  if (!flags.budget.empty()) {
    LS_TRY(const std::int64_t bytes, ParseQuantity(flags.budget,
                                                   {{"", 1},
                                                    {"B", 1},
                                                    {"kB", 1e3},
                                                    {"MB", 1e6},
                                                    {"GB", 1e9},
                                                    {"KiB", 1024},
                                                    {"MiB", 1048576},
                                                    {"GiB", 1073741824}},
                                                   "--budget", "200MB"));
    if (bytes == 0) return Error{ErrorCode::kUsage, "a budget of nothing", "--budget", "--budget 200MB"};
    options.budget_bytes = static_cast<std::uint64_t>(bytes);
  }
  if (options.format->samples_only && (!flags.budget.empty() || !flags.min_dur.empty()))
    return Error{ErrorCode::kUsage, "there are no events in " + flags.format + " that could be left out",
                 flags.budget.empty() ? "--min-dur" : "--budget", "choose by --ranks and --steps"};
  options.output = flags.output;
  options.flows = flags.flows;
  options.jobs = flags.jobs;
  options.writer.split = flags.split;
  if (flags.split && flags.format != "perfetto")
    return Error{ErrorCode::kUsage, "--split is for Perfetto", "--format " + flags.format,
                 flags.format == "kineto" ? "leave it out: kineto is a file per rank anyway" : "leave one of them out"};
  return Ok();
}

// The most frequent kind comes first; counters are values, not events.
std::string CountsText(const exporters::Counts& counts) {
  std::vector<std::pair<std::uint64_t, EventKind>> some;
  for (std::size_t kind = 0; kind < exporters::kEventKinds; ++kind)
    if (counts[kind] > 0 && static_cast<EventKind>(kind) != EventKind::kCounter)
      some.emplace_back(counts[kind], static_cast<EventKind>(kind));
  std::stable_sort(some.begin(), some.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (const auto& [count, kind] : some)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ",
                        lockstep::analysis::Count(static_cast<std::int64_t>(count)), exporters::NounOf(kind, count));
  return text;
}

// `run`: as a command takes it; "" the latest one.
int ReportExport(const ExportFlags& flags, const std::string& run, const exporters::ExportOptions& options,
                 const exporters::ExportResult& result, bool incomplete) {
  std::uint64_t events = 0;
  for (std::size_t kind = 0; kind < exporters::kEventKinds; ++kind)
    if (!exporters::IsValue(static_cast<EventKind>(kind))) events += result.written[kind];
  const std::string what = options.format->samples_only
                               ? lockstep::analysis::Plural(static_cast<std::int64_t>(result.samples), "sample")
                               : lockstep::analysis::Plural(static_cast<std::int64_t>(events), "event");
  bool shown = Show("{}: {} of {} on {}\n", result.output, lockstep::analysis::Bytes(result.bytes), what,
                    lockstep::analysis::Plural(static_cast<std::int64_t>(result.ranks), "rank"));
  if (const std::string counts = CountsText(result.written); !counts.empty()) Show("  {}\n", counts);
  if (const std::string dropped = CountsText(result.left_out); !dropped.empty())
    Show("  left out, below {}: {}\n", lockstep::analysis::Duration(result.least_ns), dropped);
  for (const std::string& line : result.troubles) Show("  lost: {}\n", line);
  if (result.over_budget)
    Show(
        "  larger than --budget {}: what is left is steps, collectives and long events\n"
        "        try: --steps A:B or --ranks 0-3\n",
        flags.budget);
  if (options.format->name == "perfetto" && !flags.split)
    Show("  next:  lockstep open{}{}\n", run.empty() ? "" : " ", run);
  if (incomplete) shown = Show("  the run is incomplete: lockstep analyze says what is missing\n") && shown;
  return !shown ? kFailed : result.troubles.empty() && !incomplete ? kOk : kIncomplete;
}

Result<int> RunExport(const ExportFlags& flags) {
  exporters::ExportOptions options;
  LS_CHECK(FillOptions(flags, options));
  LS_TRY(merge::MergeOptions merge, MergeOptionsOf(flags.runs, flags));
  merge.clock = ClockChoiceOf(flags.clock);
  std::string trouble;
  bool incomplete = false;
  const auto work = [&](const merge::Timeline& timeline, Progress& progress) -> Result<exporters::ExportResult> {
    if (options.output.empty() && !merge.write)
      return Error{ErrorCode::kUsage, "the run directory cannot be written to", merge.run_dir,
                   "name another file or directory with -o"};
    options.progress = [&](std::string_view phase, double done) { progress.Show(phase, done); };
    trouble.clear();
    if (!flags.no_findings && (flags.format == "perfetto" || flags.format == "chrome"))
      options.findings = FindingsOf(timeline, flags.jobs, trouble);
    incomplete = analysis::IncompleteInput(timeline);
    return exporters::Export(timeline, options);
  };
  LS_TRY(const exporters::ExportResult result, WithRun(merge, flags.quiet, work));
  if (!trouble.empty() && !flags.quiet) Note("lockstep: no findings in it: {}\n", trouble);
  const std::string run = flags.runs.empty() ? "" : flags.runs.size() == 1 ? flags.runs[0] : merge.run_dir;
  return ReportExport(flags, run, options, result, incomplete);
}

}  // namespace

void AddExport(CLI::App& root, Chosen& chosen) {
  auto flags = std::make_shared<ExportFlags>();
  CLI::App* app = root.add_subcommand("export", "Write a run for another tool: Perfetto, Kineto, CSV, speedscope");
  app->footer(
      "Examples:\n"
      "  lockstep export                          timeline.pftrace of the latest run, for ui.perfetto.dev\n"
      "  lockstep export RUN --format kineto      a trace per rank on one clock\n"
      "  lockstep export RUN --steps 100:110 --budget 200MB\n"
      "  lockstep export RUN --format speedscope  flame graphs of sampled stacks");
  std::vector<std::string> names;
  std::string summary;
  for (const exporters::Format& format : exporters::Formats()) {
    names.emplace_back(format.name);
    summary += fmt::format("{}{}: {}", summary.empty() ? "" : "; ", format.name, format.summary);
  }
  AddRunsArgument(*app, flags->runs);
  app->add_option("--format", flags->format, summary)->check(CLI::IsMember(names))->capture_default_str();
  app->add_option("-o,--output", flags->output, "File or directory to make (default: in the run directory)")
      ->type_name("PATH");
  AddStepsFlag(*app, flags->steps);
  app->add_option("--ranks", flags->ranks, "These ranks only")->type_name("0-3,7");
  app->add_option("--min-dur", flags->min_dur,
                  "Leave out ranges, calls, kernels, copies and messages shorter than that, as in 5us")
      ->type_name("TIME");
  app->add_option(
         "--budget", flags->budget,
         "The largest output size, for example 200MB: the shortest events are left out, and a line reports which")
      ->type_name("SIZE");
  app->add_option("--flows", flags->flows, "perfetto: arrows, for the costliest waits")->capture_default_str();
  app->add_flag("--split", flags->split, "perfetto: an archive with a file per rank");
  AddClockFlag(*app, flags->clock);
  app->add_flag("--no-findings", flags->no_findings, "Leave out the findings of the analysis");
  AddReadFlags(*app, *flags);
  app->callback([flags, &chosen] { chosen = [flags] { return RunExport(*flags); }; });
}

}  // namespace lockstep::cli
