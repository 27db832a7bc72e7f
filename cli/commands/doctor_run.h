#pragma once
// `lockstep doctor RUN`: checks whether this run is complete and reliable.

#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/doctor/check.h"

namespace lockstep::cli {

struct RunFinding {
  std::string name;
  doctor::Finding finding;
};

// Nothing is written to the run. An error if it cannot be read at all.
Result<std::vector<RunFinding>> LookAtRun(const std::string& run_dir, unsigned jobs);

}  // namespace lockstep::cli
