#pragma once
// Spool -> rank file(s), after the application has ended in good order.

#include <string>
#include <vector>

#include "core/result.h"
#include "runtime/agent/rundir/run_dir.h"
#include "runtime/agent/slot/agent.h"

namespace lockstep::agent {

// Writes ranks/rank-NNNNN.h5 (further processes that used a source: .p2.h5, ...)
// from the spool, at low priority. The spool is left to the caller.
Result<std::vector<RunFile>> ConvertSpool(const std::string& spool_path, const RunDir& dir, std::int32_t slot);

}  // namespace lockstep::agent
