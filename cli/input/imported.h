#pragma once
// Accepts trace files where a command expects a run directory.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/output/progress.h"
#include "core/result.h"
#include "ingest/import.h"

namespace lockstep::cli {

// How a run is read, or made from traces.
struct ReadFlags {
  std::string step_range;  // Of traces: ranges of this name are the steps; "": those that are named like steps.
  unsigned jobs = 0;       // 0: all allowed cores.
  bool quiet = false;
};

// -j, --jobs and --step-range, for `import` and all commands that take traces.
void AddTraceFlags(CLI::App& app, std::string& step_range, unsigned& jobs);
void AddReadFlags(CLI::App& app, ReadFlags& flags);  // These, -q and --quiet.

// The positional argument that ResolveRunOrTraces takes.
void AddRunsArgument(CLI::App& app, std::vector<std::string>& runs);

void ShowImport(Progress& progress, const ingest::ImportProgress& import);

// The run directory for `given`: as ResolveRun finds it for a run; for trace files and directories of such, an import
// in a cache beside them (DIR/.lockstep/, or below the user's cache directory), made now if it does not exist or is
// older. kUsage: a step range for a run.
Result<std::string> ResolveRunOrTraces(const std::vector<std::string>& given, const ReadFlags& flags);
// Of one word, "" for the latest run.
Result<std::string> ResolveOne(const std::string& given, const ReadFlags& flags);

}  // namespace lockstep::cli
