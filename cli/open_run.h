#pragma once
// A run directory as most commands want it: merged.

#include <CLI/CLI.hpp>
#include <string>

#include "cli/progress.h"
#include "core/result.h"
#include "merge/merge.h"

namespace lockstep::cli {

// --clock, the same for all commands, and what it chooses.
void AddClockFlag(CLI::App& app, std::string& clock);
ClockChoice ClockChoiceOf(const std::string& clock);

// The timeline of merge.run_dir, merged now if it is not there or older than the ranks' files; what killed ranks left
// is finished first. Sets merge.write: a directory that cannot be written to is read all the same. `progress` must
// outlive the call only.
Result<Timeline> OpenRun(MergeOptions& merge, Progress& progress);

}  // namespace lockstep::cli
