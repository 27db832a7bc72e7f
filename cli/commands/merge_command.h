#pragma once
// The common code of `lockstep merge` and `lockstep-merge-mpi`.

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "merge/merge.h"

namespace lockstep::cli {

// Choices for merging, the same for all commands that merge by themselves.
struct MergeChoices {
  std::string clock = "auto", classes = "lockstep", window = "lockstep", steps;
};
void AddClockFlag(CLI::App& app, std::string& clock);
merge::ClockChoice ClockChoiceOf(const std::string& clock);
void AddStepsFlag(CLI::App& app, std::string& steps);
void AddClassesFlag(CLI::App& app, std::string& classes);
void AddMergeChoices(CLI::App& app, MergeChoices& choices);  // These and --window.
// kUsage: invalid steps, or two flags that choose steps.
Status FillMergeOptions(const MergeChoices& choices, merge::MergeOptions& merge);

struct MergeFlags {
  std::string run, json;
  MergeChoices choices;
  unsigned jobs = 0;
  bool quiet = false;
  std::function<Result<std::string>(const std::string& run)> resolve;  // Instead of ResolveRun.
};

void AddMergeFlags(CLI::App& command, MergeFlags& flags);

// The exit code, the same on every process of `team` (null: alone); the first one prints what was merged, none an
// error.
Result<int> RunMerge(const MergeFlags& flags, merge::MergeTeam* team);

}  // namespace lockstep::cli
