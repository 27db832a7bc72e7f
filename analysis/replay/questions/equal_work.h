#pragma once
// Changes the durations for the questions "without what slows rank R", where slow ranks become equal to the others, and
// "equal work", where all become equal.

#include <cstdint>
#include <vector>

#include "analysis/replay/graph/job.h"
#include "analysis/replay/graph/recorded_run.h"

namespace lockstep::replay {

// Each piece of work of `ranks` takes as long as the same piece on the other ranks that divide their step equally
// (lower median); if there are none, as long as the sum of the others' work.
void EqualiseWork(const RecordedRun& run, const std::vector<std::int32_t>& ranks, Job& job);

// Distributes the same work evenly: each piece of work of every rank takes the mean over the ranks that divide this
// step equally; if no other rank does, the rank's work takes the mean of the ranks' sums. No work is removed.
void EvenOutWork(const RecordedRun& run, Job& job);

}  // namespace lockstep::replay
