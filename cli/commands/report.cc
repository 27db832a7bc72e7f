// lockstep report: the analysis as one page that any browser shows without a network.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "analysis/core/format.h"
#include "analysis/report/html/html.h"
#include "analysis/report/json.h"
#include "cli/commands/merge_command.h"
#include "cli/input/open_run.h"
#include "cli/input/run_progress.h"
#include "cli/options/command.h"
#include "cli/output/out.h"
#include "cli/output/write_file.h"
#include "merge/merge.h"

namespace lockstep::cli {
namespace {

struct ReportFlags : RunFlags {
  MergeChoices choices;
  std::string output, timeline_steps;
  bool no_replay = false;
};

Result<int> RunReport(const ReportFlags& flags) {
  const Result<StepRange> shown = ParseSteps(flags.timeline_steps);
  if (!shown.ok()) return Error{ErrorCode::kUsage, shown.error().what, "--timeline-steps", "--timeline-steps 110:120"};
  LS_TRY(merge::MergeOptions merge, MergeOptionsOf(flags.runs, flags));
  LS_CHECK(FillMergeOptions(flags.choices, merge));
  const bool writable = ::access(merge.run_dir.c_str(), W_OK) == 0;
  if (!writable && flags.output.empty())
    return Error{ErrorCode::kIo, "the run directory is read-only", merge.run_dir, "lockstep report RUN -o FILE"};
  analysis::AnalyzeOptions options;
  options.jobs = flags.jobs;
  options.replay = !flags.no_replay;
  options.hang = [&] { return HangOfRun(merge.run_dir, flags.jobs); };
  report::HtmlOptions html;
  if (!flags.timeline_steps.empty()) {
    html.first_timeline_step = std::max<std::int64_t>(0, shown.value().first);
    html.last_timeline_step = shown.value().last < 0 ? INT64_MAX : shown.value().last;
  }
  LS_TRY(const report::HtmlReport report,
         WithRun(merge, flags.quiet, [&](const merge::Timeline& timeline, Progress& progress) {
           ShowPasses(progress, options);
           return report::MakeHtmlReport(timeline, options, html);
         }));
  const int code = report.analysis.incomplete() ? kIncomplete : kOk;
  const std::string path = flags.output.empty() ? merge.run_dir + "/report.html" : flags.output;
  const std::string hint = "lockstep report RUN -o FILE elsewhere";
  LS_CHECK(WriteOrShow(path, report.page, ShowData, hint));
  if (path == "-") return code;
  // Both are written, because a page beside an older analysis would differ from it.
  if (writable) LS_CHECK(WriteWhole(merge.run_dir + "/analysis.json", report::RenderJson(report.analysis), hint));
  const bool said = flags.quiet || Show("{}\n\n  {}  {}    opens in any browser, needs no network\n",
                                        report.analysis.verdict, path, lockstep::analysis::Bytes(report.page.size()));
  return said ? code : kFailed;
}

}  // namespace

void AddReport(CLI::App& root, Chosen& chosen) {
  auto flags = std::make_shared<ReportFlags>();
  CLI::App* app = root.add_subcommand("report", "Write the analysis as one HTML page: plots, timeline, what-if");
  app->footer(
      "Examples:\n"
      "  lockstep report                          RUN/report.html of the latest run\n"
      "  lockstep report RUN -o step.html");
  AddRunsArgument(*app, flags->runs);
  app->add_option("-o,--output", flags->output,
                  "Write the page to FILE instead of RUN/report.html; - for standard output")
      ->type_name("FILE");
  app->add_option("--timeline-steps", flags->timeline_steps,
                  "Steps whose timeline the page has beside the median, longest and shortest")
      ->type_name("A:B");
  AddMergeChoices(*app, flags->choices);
  app->add_flag("--no-replay", flags->no_replay, "Skip the replay of the run, which takes most of the time");
  AddReadFlags(*app, *flags);
  app->callback([flags, &chosen] { chosen = [flags] { return RunReport(*flags); }; });
}

}  // namespace lockstep::cli
