// lockstep diff: is this run slower than that one, and why.

#include "analysis/report/diff.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "analysis/analyze.h"
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
  std::string base, now, fail_on{diff::kDefaultLimits}, json, markdown, save_baseline;
  unsigned jobs = 0;
  bool quiet = false;
};

Result<diff::RunSample> ReadBaseline(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return Error{ErrorCode::kIo, "the file cannot be read", path, "check its permissions"};
  return diff::ParseBaseline(text.str(), path);
}

// The file holds an analysis: of the run whose directory it lies in, if it does.
bool IsAnalysis(const fs::path& path) {
  std::error_code ignored;
  return path.filename() == "analysis.json" && fs::is_directory(path.parent_path() / "ranks", ignored);
}

// Of a file that begins like JSON and not like a list of trace events.
bool IsBaseline(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  std::ifstream file(path, std::ios::binary);
  std::string begin(512, '\0');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, file.gcount())));
  return begin.find("\"lockstep.") != std::string::npos;
}

// A run directory, traces, or a baseline.
Result<diff::RunSample> Read(const std::string& name, const Flags& flags) {
  std::string run = name;
  if (IsAnalysis(name)) run = fs::path(name).parent_path().string();
  if (IsBaseline(run)) return ReadBaseline(run);
  LS_TRY(const std::string directory, ResolveRunOrTraces({run}, flags.jobs, flags.quiet));
  merge::MergeOptions merge;
  merge.run_dir = directory;
  merge.jobs = flags.jobs;
  Progress progress(flags.quiet);
  analysis::AnalyzeOptions options;
  options.jobs = flags.jobs;
  return WithRun(merge, progress, [&](const merge::Timeline& timeline) {
    return diff::SampleOf(timeline, options, name.empty() ? "latest" : name);
  });
}

// Whole or not at all; "-" is standard output, where it is shown by `show`.
Status Write(const std::string& path, const std::string& text, bool (*show)(std::string_view)) {
  if (path != "-") return WriteWhole(path, text, "name a file that can be written");
  if (show(text)) return Ok();
  return Error{ErrorCode::kIo, "standard output cannot be written", "", "name a file instead of -"};
}

int Diff(const Flags& flags) {
  if (flags.json == "-" && flags.markdown == "-")
    return PrintError({ErrorCode::kUsage, "two outputs cannot both be standard output", "--json - --markdown -",
                       "name a file for one of them"});
  const auto limits = diff::ParseLimits(flags.fail_on);
  if (!limits.ok()) return PrintError(limits.error());
  auto base = Read(flags.base, flags);
  if (!base.ok()) return PrintError(base.error());
  if (!flags.save_baseline.empty()) {
    if (Status written = Write(flags.save_baseline, diff::BaselineJson(base.value()), ShowJson); !written.ok())
      return PrintError(written.error());
    if (flags.now.empty()) {
      if (!flags.quiet && flags.save_baseline != "-")
        Note("lockstep: wrote the baseline {} from {} steps of {}; next: lockstep diff {} NEW\n", flags.save_baseline,
             base.value().steps, base.value().label, flags.save_baseline);
      return base.value().incomplete.empty() ? kOk : kIncomplete;
    }
  }
  auto now = Read(flags.now, flags);
  if (!now.ok()) return PrintError(now.error());
  auto comparison = diff::Compare(std::move(base).value(), std::move(now).value(), limits.value());
  if (!comparison.ok()) return PrintError(comparison.error());
  const diff::Comparison& c = comparison.value();
  if (!flags.json.empty())
    if (Status written = Write(flags.json, report::RenderDiffJson(c), ShowJson); !written.ok())
      return PrintError(written.error());
  if (!flags.markdown.empty())
    if (Status written = Write(flags.markdown, report::RenderDiffMarkdown(c), ShowText); !written.ok())
      return PrintError(written.error());
  if (flags.json != "-" && flags.markdown != "-")
    if (Status written = Write("-", report::RenderDiffText(c, report::TextOptions::ForFile(STDOUT_FILENO)), ShowText);
        !written.ok())
      return PrintError(written.error());
  if (c.regression) return kRegression;
  return c.incomplete() ? kIncomplete : kOk;
}

}  // namespace

void AddDiff(CLI::App& root, Chosen& chosen) {
  auto flags = std::make_shared<Flags>();
  CLI::App* app = root.add_subcommand("diff", "Compare two runs step by step: slower or not, by how much, and why");
  app->footer(
      "Examples:\n"
      "  lockstep diff BEFORE AFTER\n"
      "  lockstep diff RUN --save-baseline ci/ddp8.json      then, later:\n"
      "  lockstep diff ci/ddp8.json --fail-on step_ns:+3%,exposed_wait_ns:+5% --markdown summary.md\n"
      "Exit code 4: a measure of --fail-on is worse; 3: a run is not complete; 0 otherwise.");
  app->add_option("base", flags->base, "Run directory, traces of other tools, or a file of --save-baseline")
      ->type_name("BASE")
      ->required();
  app->add_option("new", flags->now, "Run directory or traces (default: the latest run)")->type_name("NEW");
  app->add_option("--fail-on", flags->fail_on,
                  "Limits: a measure that gets worse by more than its limit is a regression; in % of BASE or as a time")
      ->type_name("MEASURE:+CHANGE,..")
      ->capture_default_str();
  app->add_option("--json", flags->json, "Write the comparison to FILE; - for standard output instead of the text")
      ->type_name("FILE");
  app->add_option("--markdown", flags->markdown, "The same as Markdown, for a merge request")->type_name("FILE");
  app->add_option(
         "--save-baseline", flags->save_baseline,
         "Write a baseline of BASE to FILE: a small JSON file that can be used in place of the run. Without NEW "
         "nothing is compared")
      ->type_name("FILE");
  app->add_option("-j,--jobs", flags->jobs, "Threads (default: all allowed cores)")->type_name("N");
  app->add_flag("-q,--quiet", flags->quiet, "No progress and no notices on standard error");
  app->callback([flags, &chosen] { chosen = [flags] { return Diff(*flags); }; });
}

}  // namespace lockstep::cli
