#pragma once
// What a GPU run did in some of its steps, read for replay. Questions change the items
// (another bucketing) or the graph made from them (gpu_job.cc).

#include <memory>
#include <optional>
#include <vector>

#include "analysis/replay/gpu_rank.h"
#include "analysis/replay/recorded_run.h"

namespace lockstep::replay {

class GpuRun : public RecordedRun {
 public:
  std::vector<GpuRank> gpu_ranks;  // Per rank.
  // Grouped sends and receives follow the collectives proper in `collectives`: those of a rank's messages begin here,
  // [rank][its message].
  std::vector<std::vector<std::uint32_t>> of_message;

  using RecordedRun::MakeJob;
  Job MakeJob(const JobOptions& options) const override;       // gpu_job.cc
  InterferenceEstimate EstimateInterference() const override;  // gpu_interference.cc
  std::optional<BucketSequence> FindBuckets() const override;  // gpu_rebucket.cc
  Result<std::unique_ptr<RecordedRun>> Rebucket(const BucketSequence& buckets, const std::vector<std::uint64_t>& bytes,
                                                const CostModel& costs, const ReductionTimes& times) const override;
};

// A run without steps is one step, from its first to its last GPU event. kUnsupported if some ranks have no GPU work.
Result<GpuRun> ReadGpuRun(const Timeline& timeline, const ReadRunOptions& options = {});

}  // namespace lockstep::replay
