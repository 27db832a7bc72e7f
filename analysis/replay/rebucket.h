#pragma once
// Another bucketing of the same gradients: a run as it would have been had its gradients
// been reduced in other pieces. Gradients become ready as the backward pass goes on; when,
// is known for the ends of the buckets that were used, and interpolated by bytes between.

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/replay/cost_model.h"
#include "analysis/replay/host_job.h"

namespace lockstep::replay {

// The reductions of gradients, as all steps have them.
struct BucketSequence {
  std::uint64_t comm = 0;
  std::vector<std::uint64_t> bytes;        // In the order in which they are launched.
  std::vector<std::uint32_t> first;        // [step]: of `collectives`, then bytes.size() of them.
  std::vector<std::uint32_t> collectives;  // Of HostRun::collectives, by step and place.
  std::uint64_t total_bytes() const;
};

// The all-reduces of one communicator that carry most bytes, if every replayed step has the
// same sequence of at least one: what DDP and its kind do. Nothing otherwise.
std::optional<BucketSequence> FindBuckets(const HostRun& run);

// Bytes of the buckets that a cap gives. Where the sizes of the gradients are not known buckets end where measured ones
// ended, if that is within a quarter of the cap behind the limit, else at the limit itself (`interpolated`).
struct BucketSizes {
  std::vector<std::uint64_t> bytes;
  bool interpolated = false;
};
BucketSizes SizesFor(const BucketSequence& buckets, std::uint64_t first_bytes, std::uint64_t cap_bytes);

// What the reductions took in the replay of what was recorded.
struct ReductionTimes {
  std::vector<std::int64_t> transfer_ns;  // By step and place, as BucketSequence::collectives; median over ranks.
  std::int64_t exit_ns = 0;               // Median time until the other ranks are through as well.
  std::vector<double> step_factor;        // [step]: all of its reductions against what the costs say of them.
};
ReductionTimes TimesOf(const HostRun& run, const BucketSequence& buckets, const Job& job);
void FitSteps(const BucketSequence& buckets, const CostModel& costs, ReductionTimes& times);

// Every step's reductions replaced by ones of `bytes` (together as many as before), each launched when its last
// gradient is ready and taking what the costs say, times what that step's own took beyond them. kUnsupported if these
// know no size at all.
Result<HostRun> Rebucket(const HostRun& run, const BucketSequence& buckets, const std::vector<std::uint64_t>& bytes,
                         const CostModel& costs, const ReductionTimes& times);

}  // namespace lockstep::replay
