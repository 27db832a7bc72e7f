// lockstep analyze: the verdict on a run.

#include "analysis/analyze.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <system_error>

#include "analysis/core/format.h"
#include "analysis/report/json.h"
#include "analysis/report/text.h"
#include "cli/commands/analyze_table.h"
#include "cli/input/imported.h"
#include "cli/input/open_run.h"
#include "cli/options/command.h"
#include "cli/output/out.h"
#include "cli/output/write_file.h"
#include "merge/merge.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

struct Flags {
  std::vector<std::string> runs;  // A run directory, or traces.
  std::string json, bytes_matrix, steps, classes = "lockstep", window = "lockstep", clock = "auto";
  unsigned jobs = 0;
  std::optional<std::int64_t> explain;  // Of a finding, from 1.
  bool quiet = false, no_replay = false;
  TableFlags table;
};

constexpr const char* kElsewhere = "lockstep analyze --json FILE elsewhere";

std::string FilesLine(const std::string& run_dir) {
  std::string line;
  for (const char* name : {"report.html", "timeline.pftrace", "timeline.h5", "analysis.json"}) {
    std::error_code absent;
    const auto bytes = fs::file_size(fs::path(run_dir) / name, absent);
    if (!absent) line += fmt::format("{}{}  {}", line.empty() ? "" : "    ", name, lockstep::analysis::Bytes(bytes));
  }
  return line;
}

// The rank x rank matrix of point-to-point messages, its non-zero cells; columns as in p2p_pairs.
std::string BytesMatrix(const schema::TlP2pPairs& pairs) {
  std::string csv;
  pairs.ForEachColumn(
      [&](const schema::ColumnInfo& info, const auto&) { csv += (csv.empty() ? "" : ",") + std::string(info.name); });
  csv += '\n';
  for (std::size_t row = 0; row < pairs.rows(); ++row) {
    const std::size_t begin = csv.size();
    pairs.ForEachColumn([&](const schema::ColumnInfo&, const auto& column) {
      csv += fmt::format("{}{}", csv.size() == begin ? "" : ",", column[row]);
    });
    csv += '\n';
  }
  return csv;
}

int Analyze(const Flags& flags) {
  if (!flags.table.name.empty()) {
    if (PrintTableHelp(flags.table)) return kOk;
    if (const int wrong = CheckTableFlags(flags.table); wrong != kOk) return wrong;
  }
  Result<std::string> run = ResolveRunOrTraces(flags.runs, flags.jobs, flags.quiet);
  if (!run.ok()) return PrintError(run.error());
  merge::MergeOptions merge;
  merge.run_dir = run.value();
  merge.jobs = flags.jobs;
  merge.classes = flags.classes;
  merge.window = flags.window;
  if (flags.window == "hta" && !flags.steps.empty())
    return PrintError({ErrorCode::kUsage, "--window hta chooses its steps itself", "--steps", "leave one of them out"});
  merge.clock = ClockChoiceOf(flags.clock);
  const Result<StepRange> steps = ParseSteps(flags.steps);
  if (!steps.ok()) return PrintError(steps.error());
  merge.first_step = steps.value().first;
  merge.last_step = steps.value().last;
  // A table narrows by itself: the timeline of the whole window serves any steps.
  const std::int64_t first_step = merge.first_step, last_step = merge.last_step;
  if (!flags.table.name.empty()) merge.first_step = merge.last_step = -1;

  auto progress = std::make_unique<Progress>(flags.quiet);
  if (!flags.table.name.empty()) {
    const Result<MadeTable> table = WithRun(merge, *progress, [&](const merge::Timeline& timeline) {
      return MakeTableOf(flags.table, first_step, last_step, flags.jobs, timeline,
                         [&](double done) { progress->Show("read", done); });
    });
    progress.reset();
    return table.ok() ? PrintTable(flags.table, flags.json, table.value()) : PrintError(table.error());
  }
  analysis::AnalyzeOptions options;
  options.jobs = flags.jobs;
  options.replay = !flags.no_replay;
  std::string matrix;
  const Result<analysis::Analysis> analysis = WithRun(merge, *progress, [&](const merge::Timeline& timeline) {
    if (!flags.bytes_matrix.empty()) matrix = BytesMatrix(timeline.tables.p2p_pairs);
    return lockstep::analysis::Analyze(timeline, options);
  });
  progress.reset();
  if (!analysis.ok()) return PrintError(analysis.error());

  const std::string json = report::RenderJson(analysis.value());
  int code = analysis.value().incomplete() ? kIncomplete : kOk;
  if (merge.write) {
    if (Status written = WriteWhole(merge.run_dir + "/analysis.json", json, kElsewhere); !written.ok())
      code = PrintError(written.error());
  } else if (!flags.quiet) {
    Note("lockstep: {} is read-only: analysis.json is not written there\n", merge.run_dir);
  }
  if (!flags.bytes_matrix.empty()) {
    if (flags.bytes_matrix == "-") return ShowText(matrix) ? code : kFailed;
    if (Status written = WriteWhole(flags.bytes_matrix, matrix, kElsewhere); !written.ok())
      return PrintError(written.error());
  }
  if (flags.json == "-") return ShowJson(json) ? code : kFailed;
  if (!flags.json.empty())
    if (Status written = WriteWhole(flags.json, json, kElsewhere); !written.ok()) return PrintError(written.error());

  const report::TextOptions text = report::TextOptions::ForFile(STDOUT_FILENO);
  if (flags.explain) {
    const std::size_t n = analysis.value().findings.size();
    const std::string rows =
        *flags.explain > 0 ? report::RenderExplanation(analysis.value(), static_cast<std::size_t>(*flags.explain), text)
                           : "";
    if (rows.empty())
      return PrintError({ErrorCode::kUsage, fmt::format("there is no finding {}", *flags.explain), "--explain",
                         n == 0 ? "this run has no findings: leave it out" : fmt::format("a number from 1 to {}", n)});
    return ShowText(rows) ? code : kFailed;
  }
  std::string out = report::RenderText(analysis.value(), text);
  const std::string files = FilesLine(merge.run_dir);
  if (!files.empty()) out += "\n  " + files + "\n";
  if (!analysis.value().findings.empty())
    out += out::Format("  next:  lockstep analyze {}--explain 1    the rows behind finding 1\n",
                       flags.runs.empty() ? "" : (flags.runs.size() == 1 ? flags.runs[0] : run.value()) + " ");
  return ShowText(out) ? code : kFailed;
}

}  // namespace

void AddAnalyze(CLI::App& root, Chosen& chosen) {
  auto flags = std::make_shared<Flags>();
  CLI::App* app =
      root.add_subcommand("analyze", "Report what slows a run down, what that costs per step, and what to change");
  app->footer(
      "Examples:\n"
      "  lockstep analyze                         the latest run\n"
      "  lockstep analyze RUN --explain 1         the rows behind finding 1\n"
      "  lockstep analyze traces/*.json.gz        traces of torch.profiler\n"
      "  lockstep analyze RUN --json - --steps 20:120");
  AddRunsArgument(*app, flags->runs);
  app->add_option("--json", flags->json,
                  "Write the analysis to FILE as well; - for standard output instead of the text")
      ->type_name("FILE");
  app->add_option("--bytes-matrix", flags->bytes_matrix,
                  "Write the bytes sent from each rank to each rank (point-to-point) to FILE as CSV; - for standard "
                  "output")
      ->type_name("FILE");
  app->add_option("--steps", flags->steps, "Steps A to B-1 only")->type_name("A:B");
  app->add_option("--classes", flags->classes, "How kernels are classified: by Lockstep's rules or by HTA's")
      ->check(CLI::IsMember({"lockstep", "hta"}))
      ->capture_default_str();
  app->add_option("--window", flags->window,
                  "hta: totals over the window of Holistic Trace Analysis, for comparisons with it")
      ->check(CLI::IsMember({"lockstep", "hta"}))
      ->capture_default_str();
  AddClockFlag(*app, flags->clock);
  app->add_option("-j,--jobs", flags->jobs, "Threads (default: all allowed cores)")->type_name("N");
  app->add_option("--explain", flags->explain, "Print the rows behind finding N")->type_name("N");
  app->add_flag("--no-replay", flags->no_replay, "Skip the replay of the run, which takes most of the time");
  AddTableFlags(*app, flags->table);
  app->add_flag("-q,--quiet", flags->quiet, "No progress and no notices on standard error");
  app->callback([flags, &chosen] { chosen = [flags] { return Analyze(*flags); }; });
}

}  // namespace lockstep::cli
