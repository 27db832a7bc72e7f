#pragma once
// Runs a job to its end, or to the end of its time, and leaves no process of it behind.

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace lockstep::cli {

struct ProcessEnd {
  int exit_code = 0;            // 128 + N for signal N.
  bool timed_out = false;       // It was ended for that.
  bool interrupted = false;     // This process was asked to end (SIGINT, SIGTERM), and ended it.
  double seconds = 0;           // All in all.
  std::int64_t peak_bytes = 0;  // Resident memory of its largest process on this host.
};

// From now on what the jobs' processes leave behind becomes this process's child, and SIGINT and SIGTERM are noted for
// Interrupted() instead of ending it. Call once, before the first job.
void AdoptJobs();
bool Interrupted();

// `words`: program and arguments, looked for in PATH; `environment`: "NAME=value". It runs in a process group of its
// own, reads nothing, and both its outputs go to `output`. Whatever it left running on this host is ended afterwards,
// which takes some seconds where something did not end by itself. kNotFound, kIo: it could not be started.
Result<ProcessEnd> RunJob(const std::vector<std::string>& words, const std::vector<std::string>& environment,
                          const std::string& output, double timeout_s);

}  // namespace lockstep::cli
