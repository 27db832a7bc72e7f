#pragma once
// The steps of a run on CPU ranks, read for replay: the ranks' threads divided into work, calls and collectives.
// Questions change this (another bucketing) or the graph made from it (host_job.cc).

#include <memory>
#include <vector>

#include "analysis/replay/graph/recorded_run.h"
#include "analysis/replay/graph/stretches.h"
#include "analysis/replay/host/host_interference.h"

namespace lockstep::replay {

class HostRun : public RecordedRun {
 public:
  std::vector<RankStretches> stretches;  // By rank.

  double cores_of_rank = 0;  // Of the node that has fewest for each of its ranks; 0 unknown.
  HostOverlap overlap;       // The overlap in the recorded run; empty in runs made in memory.

  using RecordedRun::MakeJob;
  Job MakeJob(const JobOptions& options) const override;  // host_job.cc
  bool moves_in_calls() const override { return true; }
  // host_interference.cc
  InterferenceEstimate EstimateInterference(const std::vector<const RecordedRun*>& others = {}) const override;
  std::vector<Launch> LaunchesOfFirstRank() const override;  // host_rebucket.cc
  std::vector<double> PartsOfTime(const BucketSequence& buckets) const override;
  std::unique_ptr<RecordedRun> WithReductions(const BucketSequence& buckets, const std::vector<std::uint64_t>& bytes,
                                              std::uint32_t first_new) const override;
};

// For ranks without GPU work. kUnsupported if there is nothing to replay: no steps.
Result<HostRun> ReadHostRun(const merge::Timeline& timeline, const ReadRunOptions& options = {});

}  // namespace lockstep::replay
