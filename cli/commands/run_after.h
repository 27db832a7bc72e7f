#pragma once
// What rank 0 does when its application has ended with success.

#include <cstdint>
#include <string>

#include "runtime/agent/slot/agent.h"

namespace lockstep::cli {

enum class After : std::uint8_t { kNone, kMerge, kAnalyze, kReport };

struct AfterOptions {
  After after = After::kAnalyze;
  std::string to;                 // File for the verdict; "": standard error.
  std::string clock;              // --clock, for merge: "off" and "wall" reach it.
  std::int64_t wait_ms = 30'000;  // For the other ranks' files.
  bool quiet = false;
  bool spools_apart = false;  // --spool-dir: what a rank that is killed leaves may be on its node only.
};

// Waits (bounded) for the other ranks, starts `lockstep merge` or `lockstep
// analyze` on the run, and prints what lies where. Nothing here changes the exit
// code: a command that fails or crashes is another process.
void RunAfter(const agent::RunResult& result, const AfterOptions& options);

}  // namespace lockstep::cli
