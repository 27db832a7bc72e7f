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
#include "cli/input/imported.h"
#include "cli/input/open_run.h"
#include "cli/options/command.h"
#include "cli/output/out.h"
#include "cli/output/write_file.h"
#include "merge/merge.h"

namespace lockstep::cli {
namespace {

struct Flags {
  std::vector<std::string> runs;  // A run directory, or traces.
  std::string output, steps, timeline_steps, classes = "lockstep", clock = "auto";
  unsigned jobs = 0;
  bool quiet = false, no_replay = false;
};

int Report(const Flags& flags) {
  const Result<StepRange> steps = ParseSteps(flags.steps), shown = ParseSteps(flags.timeline_steps);
  if (!steps.ok()) return PrintError(steps.error());
  if (!shown.ok())
    return PrintError({ErrorCode::kUsage, shown.error().what, "--timeline-steps", "--timeline-steps 110:120"});
  Result<std::string> run = ResolveRunOrTraces(flags.runs, flags.jobs, flags.quiet);
  if (!run.ok()) return PrintError(run.error());
  merge::MergeOptions merge;
  merge.run_dir = run.value();
  merge.jobs = flags.jobs;
  merge.classes = flags.classes;
  merge.clock = ClockChoiceOf(flags.clock);
  merge.first_step = steps.value().first;
  merge.last_step = steps.value().last;

  const bool writable = ::access(merge.run_dir.c_str(), W_OK) == 0;
  if (!writable && flags.output.empty())
    return PrintError({ErrorCode::kIo, "the run directory is read-only", merge.run_dir, "lockstep report RUN -o FILE"});
  auto progress = std::make_unique<Progress>(flags.quiet);
  analysis::AnalyzeOptions options;
  options.jobs = flags.jobs;
  options.replay = !flags.no_replay;
  report::HtmlOptions html;
  if (!flags.timeline_steps.empty()) {
    html.first_timeline_step = std::max<std::int64_t>(0, shown.value().first);
    html.last_timeline_step = shown.value().last < 0 ? INT64_MAX : shown.value().last;
  }
  const Result<report::HtmlReport> report = WithRun(merge, *progress, [&](const merge::Timeline& timeline) {
    return report::MakeHtmlReport(timeline, options, html);
  });
  progress.reset();
  if (!report.ok()) return PrintError(report.error());

  const int code = report.value().analysis.incomplete() ? kIncomplete : kOk;
  const std::string& page = report.value().page;
  if (flags.output == "-") return ShowData(page) ? code : kFailed;
  const std::string path = flags.output.empty() ? merge.run_dir + "/report.html" : flags.output;
  const std::string hint = "lockstep report RUN -o FILE elsewhere";
  if (Status written = WriteWhole(path, page, hint); !written.ok()) return PrintError(written.error());
  // Both say the same: a page beside an older analysis would not.
  if (writable)
    if (Status written =
            WriteWhole(merge.run_dir + "/analysis.json", report::RenderJson(report.value().analysis), hint);
        !written.ok())
      return PrintError(written.error());
  if (!flags.quiet) {
    if (!Show("{}\n\n  {}  {}    opens in any browser, needs no network\n", report.value().analysis.verdict, path,
              lockstep::analysis::Bytes(page.size())))
      return kFailed;
  }
  return code;
}

}  // namespace

void AddReport(CLI::App& root, Chosen& chosen) {
  auto flags = std::make_shared<Flags>();
  CLI::App* app = root.add_subcommand("report", "Write the analysis as one HTML page: plots, timeline, what-if");
  app->footer(
      "Examples:\n"
      "  lockstep report                          RUN/report.html of the latest run\n"
      "  lockstep report RUN -o step.html");
  AddRunsArgument(*app, flags->runs);
  app->add_option("-o,--output", flags->output,
                  "Write the page to FILE instead of RUN/report.html; - for standard output")
      ->type_name("FILE");
  app->add_option("--steps", flags->steps, "Analyse steps A to B-1 only")->type_name("A:B");
  app->add_option("--timeline-steps", flags->timeline_steps,
                  "Steps whose timeline the page has beside the median, longest and shortest")
      ->type_name("A:B");
  app->add_option("--classes", flags->classes, "How kernels are classified: by Lockstep's rules or by HTA's")
      ->check(CLI::IsMember({"lockstep", "hta"}))
      ->capture_default_str();
  AddClockFlag(*app, flags->clock);
  app->add_option("-j,--jobs", flags->jobs, "Threads (default: all allowed cores)")->type_name("N");
  app->add_flag("--no-replay", flags->no_replay, "Skip the replay of the run, which takes most of the time");
  app->add_flag("-q,--quiet", flags->quiet, "No progress and no closing line");
  app->callback([flags, &chosen] { chosen = [flags] { return Report(*flags); }; });
}

}  // namespace lockstep::cli
