#pragma once
// What a run on CPU ranks did in some of its steps, read for replay: the ranks' threads
// cut into work, calls and collectives. Questions change this (another bucketing) or the
// graph made from it (host_job.h).

#include <memory>
#include <optional>
#include <vector>

#include "analysis/replay/graph/recorded_run.h"
#include "analysis/replay/graph/stretches.h"
#include "analysis/replay/host/host_interference.h"

namespace lockstep::replay {

class HostRun : public RecordedRun {
 public:
  std::vector<RankStretches> stretches;  // Per rank.

  HostOverlap overlap;  // Of the run as recorded; empty in runs made in memory.

  using RecordedRun::MakeJob;
  Job MakeJob(const JobOptions& options) const override;  // host_job.cc
  bool moves_in_calls() const override { return true; }
  InterferenceEstimate EstimateInterference() const override { return EstimateWith({}); }
  InterferenceEstimate EstimateWith(const std::vector<const RecordedRun*>& others) const override;
  std::optional<BucketSequence> FindBuckets() const override;  // host_rebucket.cc
  Result<std::unique_ptr<RecordedRun>> Rebucket(const BucketSequence& buckets, const std::vector<std::uint64_t>& bytes,
                                                const CostModel& costs, const ReductionTimes& times) const override;
};

// Of ranks without GPU work. kUnsupported if there is nothing to replay: no steps.
Result<HostRun> ReadHostRun(const merge::Timeline& timeline, const ReadRunOptions& options = {});

}  // namespace lockstep::replay
