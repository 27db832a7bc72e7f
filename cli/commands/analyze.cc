// lockstep analyze: the verdict on a run.

#include "analysis/analyze.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "analysis/core/format.h"
#include "analysis/report/json.h"
#include "analysis/report/text.h"
#include "cli/commands/analyze_table.h"
#include "cli/commands/merge_command.h"
#include "cli/gather/command.h"
#include "cli/input/open_run.h"
#include "cli/input/run_progress.h"
#include "cli/options/command.h"
#include "cli/output/out.h"
#include "cli/output/write_file.h"
#include "core/wrap.h"
#include "merge/merge.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

struct AnalyzeFlags : RunFlags {
  MergeChoices choices;
  std::string json, bytes_matrix;
  std::string explain;  // The number of a finding, from 1, or kTrust.
  bool no_replay = false;
  TableFlags table;
};

constexpr const char* kTrust = "trust";
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

Result<int> Tables(const AnalyzeFlags& flags) {
  if (PrintTableHelp(flags.table)) return kOk;
  LS_CHECK(CheckTableFlags(flags.table));
  LS_TRY(merge::MergeOptions merge, MergeOptionsOf(flags.runs, flags));
  LS_CHECK(FillMergeOptions(flags.choices, merge));
  // The table itself selects the steps: the timeline of the whole window is used for any steps.
  const std::int64_t first_step = std::exchange(merge.first_step, -1), last_step = std::exchange(merge.last_step, -1);
  LS_TRY(const MadeTable table, WithRun(merge, flags.quiet, [&](const merge::Timeline& timeline, Progress& progress) {
           return MakeTableOf(flags.table, first_step, last_step, flags.jobs, timeline,
                              [&](double done) { progress.Show("read", done); });
         }));
  return PrintTable(flags.table, flags.json, table);
}

// The text to show: the verdict, or the rows behind one finding.
Result<std::string> OutputOf(const AnalyzeFlags& flags, const std::string& run_dir,
                             const analysis::Analysis& analysis) {
  const report::TextOptions options = report::TextOptions::ForFile(STDOUT_FILENO);
  if (flags.explain == kTrust) return report::RenderTrust(analysis, options);
  if (!flags.explain.empty()) {
    std::size_t number = 0;
    const char* const end = flags.explain.data() + flags.explain.size();
    if (std::from_chars(flags.explain.data(), end, number).ptr != end) number = 0;
    if (std::string rows = report::RenderExplanation(analysis, number, options); !rows.empty()) return rows;
    const std::size_t n = analysis.findings.size();
    return Error{ErrorCode::kUsage, "there is no finding " + flags.explain, "--explain",
                 n == 0 ? "this run has no findings: leave it out, or --explain trust"
                        : fmt::format("a number from 1 to {}, or trust", n)};
  }
  std::string text = report::RenderText(analysis, options);
  std::string next;
  if (const std::string files = FilesLine(run_dir); !files.empty()) next = "\n  " + files + "\n";
  if (!analysis.findings.empty())
    next += out::Format("  next:  lockstep analyze {}--explain 1    the rows behind finding 1\n",
                        flags.runs.empty() ? "" : (flags.runs.size() == 1 ? flags.runs[0] : run_dir) + " ");
  // A command with a long name in it can be copied from a file.
  return text + (options.terminal ? WrapLongLines(next, options.width) : next);
}

Result<int> Analyze(const AnalyzeFlags& flags) {
  if (!flags.table.name.empty()) return Tables(flags);
  LS_TRY(merge::MergeOptions merge, MergeOptionsOf(flags.runs, flags));
  LS_CHECK(FillMergeOptions(flags.choices, merge));
  std::string matrix;
  LS_TRY(const analysis::Analysis analysis,
         WithRun(merge, flags.quiet, [&](const merge::Timeline& timeline, Progress& progress) {
           if (!flags.bytes_matrix.empty()) matrix = BytesMatrix(timeline.tables.p2p_pairs);
           analysis::AnalyzeOptions options;
           options.jobs = flags.jobs;
           options.replay = !flags.no_replay;
           options.hang = [&] { return HangOfRun(merge.run_dir, flags.jobs); };
           ShowPasses(progress, options);
           return lockstep::analysis::Analyze(timeline, options);
         }));
  const std::string json = report::RenderJson(analysis);
  int code = analysis.incomplete() ? kIncomplete : kOk;
  if (!merge.write) {
    if (!flags.quiet) Note("lockstep: {} is read-only: analysis.json is not written there\n", merge.run_dir);
  } else if (Status written = WriteWhole(merge.run_dir + "/analysis.json", json, kElsewhere); !written.ok()) {
    code = PrintError(written.error());  // The result is shown all the same.
  }
  if (!flags.bytes_matrix.empty()) LS_CHECK(WriteOrShow(flags.bytes_matrix, matrix, ShowText, kElsewhere));
  if (flags.bytes_matrix == "-") return code;
  if (!flags.json.empty()) LS_CHECK(WriteOrShow(flags.json, json, ShowJson, kElsewhere));
  if (!analysis.run.ranks_missing.empty() && !flags.quiet)
    if (const std::string where = WhereOthersAre(merge.run_dir, static_cast<std::int32_t>(analysis.run.ranks_expected));
        !where.empty())
      Note("{}\n", where);
  if (flags.json == "-") return code;
  LS_TRY(const std::string text, OutputOf(flags, merge.run_dir, analysis));
  return ShowText(text) ? code : kFailed;
}

}  // namespace

void AddAnalyze(CLI::App& root, Chosen& chosen) {
  auto flags = std::make_shared<AnalyzeFlags>();
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
  AddMergeChoices(*app, flags->choices);
  app->add_option("--explain", flags->explain, "Print the rows behind finding N; trust: what was lost or guessed")
      ->type_name("N|trust");
  app->add_flag("--no-replay", flags->no_replay, "Skip the replay of the run, which takes most of the time");
  AddTableFlags(*app, flags->table);
  AddReadFlags(*app, *flags);
  app->callback([flags, &chosen] { chosen = [flags] { return Analyze(*flags); }; });
}

}  // namespace lockstep::cli
