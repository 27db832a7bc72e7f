#pragma once
// What `lockstep merge` and `lockstep-merge-mpi` have in common: all but the processes.

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "merge/merge.h"

namespace lockstep::cli {

struct MergeFlags {
  std::string run, clock = "auto", classes = "lockstep", window = "lockstep", steps, json;
  unsigned jobs = 0;
  std::function<Result<std::string>(const std::string& run)> resolve;  // Instead of ResolveRun.
};

void AddMergeFlags(CLI::App& command, MergeFlags& flags);

// The exit code, the same on every process of `team` (null: alone); the first one prints.
int RunMerge(const MergeFlags& flags, merge::MergeTeam* team);

}  // namespace lockstep::cli
