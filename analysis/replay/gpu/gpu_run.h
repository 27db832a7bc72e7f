#pragma once
// The work of a GPU run in some of its steps, read for replay. Questions change the items (another bucketing) or the
// graph made from them (gpu_job.cc).

#include <memory>
#include <vector>

#include "analysis/replay/gpu/gpu_rank.h"
#include "analysis/replay/graph/recorded_run.h"
#include "analysis/rules/replay.h"

namespace lockstep::replay {

class GpuRun : public RecordedRun {
 public:
  std::vector<GpuRank> gpu_ranks;  // Per rank.
  // [rank][its message]: index in `collectives`, where messages follow the collectives; kNone: not in the replay.
  std::vector<std::vector<std::uint32_t>> of_message;

  using RecordedRun::MakeJob;
  Job MakeJob(const JobOptions& options) const override;  // gpu_job.cc
  double floor_bytes_per_ns() const override { return rules::kGpuLinkBytesPerNs; }
  // Uses this run alone. gpu_interference.cc
  InterferenceEstimate EstimateInterference(const std::vector<const RecordedRun*>& others = {}) const override;
  std::vector<Launch> LaunchesOfFirstRank() const override;  // gpu_rebucket.cc
  std::unique_ptr<RecordedRun> WithReductions(const BucketSequence& buckets, const std::vector<std::uint64_t>& bytes,
                                              std::uint32_t first_new) const override;
};

// A run without steps becomes one step, from its first to its last GPU event. kUnsupported if some ranks have no GPU
// work.
Result<GpuRun> ReadGpuRun(const merge::Timeline& timeline, const ReadRunOptions& options = {});

}  // namespace lockstep::replay
