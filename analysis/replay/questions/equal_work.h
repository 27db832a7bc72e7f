#pragma once
// Slow ranks made as the others, and all made alike: what "without what slows rank R" and "equal work" mean for
// durations.

#include <cstdint>
#include <vector>

#include "analysis/replay/graph/job.h"
#include "analysis/replay/graph/recorded_run.h"

namespace lockstep::replay {

// Each piece of work of `ranks` takes as long as the same piece on the other ranks that cut their step alike (lower
// median); where none does, as long as theirs in all.
void EqualiseWork(const RecordedRun& run, const std::vector<std::int32_t>& ranks, Job& job);

// The same work evened out: each piece of work of every rank takes what it takes in this step on the mean of the ranks
// that cut their step alike; of a rank that is alone in how it does, its work takes in all what the ranks' mean does.
// Nothing is taken away, it is only spread.
void EvenOutWork(const RecordedRun& run, Job& job);

}  // namespace lockstep::replay
