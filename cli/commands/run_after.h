#pragma once
// What rank 0 does after its application ended successfully.

#include <cstdint>
#include <string>

#include "cli/commands/run_wait.h"
#include "runtime/agent/slot/agent.h"

namespace lockstep::cli {

enum class After : std::uint8_t { kNone, kMerge, kAnalyze, kReport };

struct AfterOptions {
  After after = After::kAnalyze;
  std::string to;                 // File for the verdict; "": standard error.
  std::string clock;              // --clock, which is passed to merge if it is "off" or "wall".
  std::int64_t wait_ms = 30'000;  // The time limit for the other ranks' files.
  bool quiet = false;
  bool spools_apart = false;  // --spool-dir: the spool of a rank that is killed may be on its node only.
};

// After an application that failed: where its records are and how to bring those of all hosts together; called again,
// which other hosts' arrived all the same.
void TellFailure(const agent::RunResult& result, const AfterOptions& options);

// After one that succeeded: waits (bounded) for the other ranks' files, on rank 0 only.
Waited WaitForOthers(const agent::RunResult& result, const AfterOptions& options, const agent::OtherHosts& others);

// Then: starts `lockstep merge` or `lockstep analyze` on the run, and prints where the files are. This never changes
// the exit code: a command that fails or crashes is another process.
void RunAfter(const agent::RunResult& result, const AfterOptions& options, const Waited& waited);

}  // namespace lockstep::cli
