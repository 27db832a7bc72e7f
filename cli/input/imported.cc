#include "cli/input/imported.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/input/import_cache.h"
#include "cli/options/command.h"
#include "ingest/dumps.h"

namespace lockstep::cli {
namespace fs = std::filesystem;

namespace {

// Dumps have no steps, but they do say why a job stopped.
Error DumpsError(const ingest::ProgressFormat& format, const std::string& path) {
  return {ErrorCode::kUsage, fmt::format("these are {}: they tell who holds a job up, and no times", format.what), path,
          "lockstep hang " + path};
}

}  // namespace

void AddTraceFlags(CLI::App& app, std::string& step_range, unsigned& jobs) {
  app.add_option("--step-range", step_range,
                 "Of traces: ranges of this name are the steps (default: ProfilerStep, else those named like steps)")
      ->type_name("NAME");
  app.add_option("-j,--jobs", jobs, "Threads (default: all allowed cores)")->type_name("N");
}

void AddReadFlags(CLI::App& app, ReadFlags& flags) {
  AddTraceFlags(app, flags.step_range, flags.jobs);
  app.add_flag("-q,--quiet", flags.quiet, "No progress and no notices on standard error");
}

void AddRunsArgument(CLI::App& app, std::vector<std::string>& runs) {
  app.add_option("run", runs,
                 "Run directory (default: lockstep.out/latest), or traces of other tools: files, directories")
      ->type_name("RUN");
}

void ShowImport(Progress& progress, const ingest::ImportProgress& import) {
  progress.Show(fmt::format("import, {} of {} files,", import.files_done, import.files),
                static_cast<double>(import.bytes_done) / static_cast<double>(std::max<std::uint64_t>(import.bytes, 1)));
}

Result<std::string> ResolveRunOrTraces(const std::vector<std::string>& given, const ReadFlags& flags) {
  // A quoted pattern is not a run directory either.
  const bool traces =
      given.size() > 1 ||
      (given.size() == 1 && (ingest::HoldsTraces(given[0]) ||
                             (given[0].find_first_of("*?[") != std::string::npos && !fs::exists(given[0]))));
  const auto dumps = [&]() -> const ingest::ProgressFormat* {
    if (given.empty()) return nullptr;
    std::error_code ignored;
    // A dump may be named like a trace.
    const bool trace =
        fs::is_regular_file(given[0], ignored) ? ingest::LooksLikeTrace(given[0]) : ingest::HoldsTraces(given[0]);
    return trace ? nullptr : ingest::HoldsDumps(given[0]);
  };
  // Of several traces those that cannot be read are counted as lost.
  if (given.size() == 1) LS_CHECK(MayBeRead(given[0]));
  if (std::ranges::count_if(given, HoldsRun) > 1)
    return Error{ErrorCode::kUsage, "two runs were given", given[0] + " and " + given[1],
                 "lockstep diff " + given[0] + " " + given[1] + " compares them"};
  if (traces) {
    std::error_code ignored;
    if (fs::is_regular_file(given[0], ignored))
      if (const ingest::ProgressFormat* format = dumps()) return DumpsError(*format, given[0]);
    return ImportIntoCache(given, flags);
  }
  Result<std::string> resolved = ResolveRun(given.empty() ? "" : given[0]);
  if (!resolved.ok()) {
    if (const ingest::ProgressFormat* format = dumps()) return DumpsError(*format, given[0]);
    return resolved.error();
  }
  std::string run = std::move(resolved).value();
  if (!flags.step_range.empty())
    return Error{ErrorCode::kUsage, "a run has its steps already; --step-range is for traces of other tools", run,
                 "leave it out, or record again with lockstep run --step-range " + flags.step_range};
  return run;
}

Result<std::string> ResolveOne(const std::string& given, const ReadFlags& flags) {
  return ResolveRunOrTraces(given.empty() ? std::vector<std::string>() : std::vector{given}, flags);
}

}  // namespace lockstep::cli
