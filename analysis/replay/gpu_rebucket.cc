#include "analysis/replay/gpu_run.h"

namespace lockstep::replay {

std::optional<BucketSequence> GpuRun::FindBuckets() const { return std::nullopt; }

Result<std::unique_ptr<RecordedRun>> GpuRun::Rebucket(const BucketSequence&, const std::vector<std::uint64_t>&,
                                                      const CostModel&, const ReductionTimes&) const {
  return Error{ErrorCode::kUnsupported, "no", "", ""};
}

}  // namespace lockstep::replay
