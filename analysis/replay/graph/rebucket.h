#pragma once
// Another bucketing of the same gradients: a run as it would have been had its gradients
// been reduced in other pieces. Gradients become ready as the backward pass goes on; when,
// is known for the ends of the buckets that were used, and interpolated by bytes between.

#include <cstdint>
#include <vector>

#include "analysis/replay/graph/bucket_rule.h"
#include "analysis/replay/graph/cost_model.h"
#include "analysis/replay/graph/job.h"
#include "core/collective.h"

namespace lockstep::replay {

// One collective of a run that is replayed.
struct RunCollective {
  std::uint32_t row = 0;  // Of the timeline's; kNone for a question's own.
  std::uint64_t comm = 0;
  CollectiveKind kind = CollectiveKind::kNone;
  std::uint64_t bytes = 0;
  std::uint32_t members = 0;
  // Once all are there and it is their turn, if a question says so; -1: as measured.
  std::int64_t transfer_ns = -1;
  // From then until a rank is through, if a question says so.
  std::int64_t exit_ns = 0;
};

// The reductions of gradients, as all steps have them.
struct BucketSequence {
  std::uint64_t comm = 0;
  std::vector<std::uint64_t> bytes;        // In the order in which they are launched.
  std::vector<std::uint32_t> first;        // [step]: of `collectives`, then bytes.size() of them.
  std::vector<std::uint32_t> collectives;  // Of RecordedRun::collectives, by step and place.
  std::vector<Gradient> gradients;         // What they consist of; none if not known.
  std::uint64_t total_bytes() const;
};

// Bytes of the buckets that a cap gives: DDP's rule, if the sizes of the gradients are known. Where the sizes of the
// gradients are not known buckets end where measured ones ended, if that is within a quarter of the cap behind the
// limit, else at the limit itself (`interpolated`).
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
// `collectives`: how many the run has.
ReductionTimes TimesOf(std::size_t collectives, const BucketSequence& buckets, const Job& job);
void FitSteps(const BucketSequence& buckets, const CostModel& costs, ReductionTimes& times);

}  // namespace lockstep::replay
