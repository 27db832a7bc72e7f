#pragma once
// Spool -> rank file(s), after the application has ended in good order.

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/agent/rundir/run_dir.h"

namespace lockstep::agent {

struct RunFile {
  std::string path;
  std::uint64_t bytes = 0;
};

// Writes ranks/rank-NNNNN.h5 (further processes that used a source: .p2.h5, ...)
// from the spool, at low priority. The spool is left to the caller.
Result<std::vector<RunFile>> ConvertSpool(const std::string& spool_path, const RunDir& dir, std::int32_t slot);

}  // namespace lockstep::agent
