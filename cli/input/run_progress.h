#pragma once
// How far the ranks of a recorded run were, and who holds it up, or did when it was ended.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "ingest/progress_format.h"

namespace lockstep::cli {

struct RunProgress {
  ingest::ReadProgress read;
  std::size_t files = 0;  // Rank files and spools.
};

// `least_wait_ns` as in hang::JudgeOptions. Errors: those of merge::OpenRun.
Result<RunProgress> ProgressOfRun(const std::string& run_dir, std::int64_t least_wait_ns, unsigned jobs);

// What the run's agents said of a hang while it lasted, line by line; nothing if there was none, or if it moved again.
// Who waits for a peer that is killed may leave its call with an error, and then what it left shows no wait.
std::vector<std::string> SaidWhileItRan(const std::string& run_dir);

// What `lockstep hang RUN` says of a run that hung when it was ended, line by line; nothing if it did not, or if that
// cannot be read.
std::vector<std::string> HangOfRun(const std::string& run_dir, unsigned jobs);

}  // namespace lockstep::cli
