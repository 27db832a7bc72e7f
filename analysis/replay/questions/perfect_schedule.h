#pragma once
// The best that scheduling could do with the same work and the same network: gradients are
// sent as soon as they exist, in pieces as small as one likes, and waited for when all of
// them are needed; parameters are gathered as early as they are known. Nothing is
// transferred faster than it was.

#include <vector>

#include "analysis/replay/graph/recorded_run.h"

namespace lockstep::replay {

// Blocking reductions become posted ones, with the wait behind the last of them of the step, in front of what uses
// gradients. Those that are posted already, or belong to another thread, stay as they are. `run` is what `job` was made
// of.
void PostReductions(const RecordedRun& run, const BucketSequence& buckets, Job& job);

// Are there blocking reductions on the threads that compute?
bool HasBlockingReductions(const RecordedRun& run, const BucketSequence& buckets, const Job& job);

// Schedules of which the best one counts, the recorded one not among them. May be none: then that is the best known.
std::vector<Job> BetterSchedules(const RecordedRun& run, const std::optional<BucketSequence>& buckets,
                                 const CostModel& costs, const ReductionTimes& times);

}  // namespace lockstep::replay
