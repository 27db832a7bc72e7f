#pragma once
// Slow ranks made as the others: what "without what slows rank R" means for durations.

#include <cstdint>
#include <vector>

#include "analysis/replay/graph/job.h"
#include "analysis/replay/graph/recorded_run.h"

namespace lockstep::replay {

// Each piece of work of `ranks` takes as long as the same piece on the other ranks that cut their step alike (lower
// median); where none does, as long as theirs in all.
void EqualiseWork(const RecordedRun& run, const std::vector<std::int32_t>& ranks, Job& job);

}  // namespace lockstep::replay
