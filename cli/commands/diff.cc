// lockstep diff: is this run slower than that one, and why.

#include "analysis/report/diff.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "analysis/analyze.h"
#include "analysis/core/format.h"
#include "cli/input/open_run.h"
#include "cli/options/command.h"
#include "cli/output/out.h"
#include "cli/output/write_file.h"
#include "merge/merge.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

struct DiffFlags : ReadFlags {
  std::string base, now, fail_on{diff::kDefaultLimits}, json, markdown, save_baseline;
  bool other_gpus = false;
};

Result<diff::RunSample> ReadBaseline(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return Error{ErrorCode::kIo, "the file cannot be read", path, "check its permissions"};
  return diff::ParseBaseline(text.str(), path);
}

// Whether the file is the analysis of the run in its directory.
bool IsAnalysis(const fs::path& path) {
  std::error_code ignored;
  return path.filename() == "analysis.json" && fs::is_directory(path.parent_path() / "ranks", ignored);
}

// Whether the file begins like a JSON document of Lockstep.
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
struct Input {
  std::string name, baseline;  // "": it is a run.
  merge::MergeOptions merge;
  const std::string& place() const { return baseline.empty() ? merge.run_dir : baseline; }
};

Result<Input> Open(const std::string& name, const DiffFlags& flags) {
  Input input{.name = name.empty() ? "latest" : name, .baseline = "", .merge = {}};
  std::string run = name;
  if (IsAnalysis(name)) run = fs::path(name).parent_path().string();
  if (IsBaseline(run)) {
    input.baseline = run;
  } else {
    LS_TRY(input.merge, MergeOptionsOf({run}, flags));
  }
  return input;
}

Result<diff::RunSample> ReadSample(Input& input, const DiffFlags& flags) {
  if (!input.baseline.empty()) return ReadBaseline(input.baseline);
  analysis::AnalyzeOptions options;
  options.jobs = flags.jobs;
  return WithRun(input.merge, flags.quiet, [&](const merge::Timeline& timeline, Progress& progress) {
    ShowPasses(progress, options);
    return diff::SampleOf(timeline, options, input.name);
  });
}

Result<int> Diff(const DiffFlags& flags) {
  if (flags.json == "-" && flags.markdown == "-")
    return Error{ErrorCode::kUsage, "two outputs cannot both be standard output", "--json - --markdown -",
                 "name a file for one of them"};
  LS_TRY(const auto limits, diff::ParseLimits(flags.fail_on));
  const bool compares = flags.save_baseline.empty() || !flags.now.empty();
  LS_TRY(Input base_input, Open(flags.base, flags));
  Input now_input;
  if (compares) {
    LS_TRY(now_input, Open(flags.now, flags));
    std::error_code ignored;  // Of what does not exist, which reading it says.
    if (fs::equivalent(base_input.place(), now_input.place(), ignored))
      return diff::SameRun(base_input.name, now_input.name);
  }
  LS_TRY(auto base, ReadSample(base_input, flags));
  if (!flags.save_baseline.empty()) {
    LS_CHECK(WriteOrShow(flags.save_baseline, diff::BaselineJson(base), ShowJson));
    if (!compares) {
      if (!flags.quiet && flags.save_baseline != "-")
        Note("lockstep: wrote the baseline {} from {} of {}; next: lockstep diff {} NEW\n", flags.save_baseline,
             lockstep::analysis::Plural(base.steps, "step"), base.label, flags.save_baseline);
      return base.incomplete.empty() ? kOk : kIncomplete;
    }
  }
  LS_TRY(auto now, ReadSample(now_input, flags));
  LS_TRY(const diff::Comparison c, diff::Compare(std::move(base), std::move(now), limits, flags.other_gpus));
  if (!flags.json.empty()) LS_CHECK(WriteOrShow(flags.json, report::RenderDiffJson(c), ShowJson));
  if (!flags.markdown.empty()) LS_CHECK(WriteOrShow(flags.markdown, report::RenderDiffMarkdown(c), ShowText));
  if (flags.json != "-" && flags.markdown != "-")
    LS_CHECK(WriteOrShow("-", report::RenderDiffText(c, report::TextOptions::ForFile(STDOUT_FILENO)), ShowText));
  if (c.regression) return kRegression;
  return c.incomplete() ? kIncomplete : kOk;
}

}  // namespace

void AddDiff(CLI::App& root, Chosen& chosen) {
  auto flags = std::make_shared<DiffFlags>();
  CLI::App* app = root.add_subcommand("diff", "Compare two runs step by step: slower or not, by how much, and why");
  app->footer(
      "Examples:\n"
      "  lockstep diff BEFORE AFTER\n"
      "  lockstep diff RUN --save-baseline ci/ddp8.json      then, later:\n"
      "  lockstep diff ci/ddp8.json --fail-on step_ns:+3%,exposed_wait_ns:+5% --markdown summary.md\n"
      "Exit code 4: a measure of --fail-on is worse by its limit; 3: a run is not complete; 0 otherwise.");
  app->add_option("base", flags->base, "Run directory, traces of other tools, or a file of --save-baseline")
      ->type_name("BASE")
      ->required();
  app->add_option("new", flags->now, "Run directory or traces (default: the latest run)")->type_name("NEW");
  app->add_option("--fail-on", flags->fail_on,
                  "Limits: a measure that gets worse by its limit is a regression; in % of BASE or as a time")
      ->type_name("MEASURE:+CHANGE,..")
      ->capture_default_str();
  app->add_flag("--other-gpus", flags->other_gpus, "Compare runs of different GPUs, too");
  app->add_option("--json", flags->json, "Write the comparison to FILE; - for standard output instead of the text")
      ->type_name("FILE");
  app->add_option("--markdown", flags->markdown, "The same as Markdown, for a merge request")->type_name("FILE");
  app->add_option(
         "--save-baseline", flags->save_baseline,
         "Write a baseline of BASE to FILE: a small JSON file that can be used in place of the run. Without NEW "
         "nothing is compared")
      ->type_name("FILE");
  AddReadFlags(*app, *flags);
  app->callback([flags, &chosen] { chosen = [flags] { return Diff(*flags); }; });
}

}  // namespace lockstep::cli
