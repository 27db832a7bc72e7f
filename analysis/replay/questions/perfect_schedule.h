#pragma once
// The best possible schedule of the same work on the same network: gradients are sent as soon as they exist, in
// arbitrarily small pieces, and waited for when all of them are needed; parameters are gathered as early as they are
// known. No transfer becomes faster.

#include <vector>

#include "analysis/replay/graph/recorded_run.h"

namespace lockstep::replay {

// Blocking reductions become posted ones, with the wait after the last of them in the step, before the operation that
// uses gradients. Those that are posted already, or belong to another thread, are unchanged. `job` was made from `run`.
void PostReductions(const RecordedRun& run, const BucketSequence& buckets, Job& job);

// Whether there are blocking reductions on the threads that compute.
bool HasBlockingReductions(const RecordedRun& run, const BucketSequence& buckets, const Job& job);

// Schedules of which the best one is used; the recorded one is not among them. If there are none, the recorded one is
// the best known.
std::vector<Job> BetterSchedules(const RecordedRun& run, const std::optional<BucketSequence>& buckets,
                                 const CostModel& costs, const ReductionTimes& times);

}  // namespace lockstep::replay
