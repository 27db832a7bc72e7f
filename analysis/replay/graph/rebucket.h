#pragma once
// Another bucketing of the same gradients: the run with its gradients reduced in other pieces. Gradients become ready
// during the backward pass; the times are known for the ends of the buckets that were used, and interpolated by bytes
// between them.

#include <cstdint>
#include <vector>

#include "analysis/replay/graph/bucket_rule.h"
#include "analysis/replay/graph/cost_model.h"
#include "analysis/replay/graph/job.h"
#include "core/collective.h"

namespace lockstep::replay {

// One collective of a run that is replayed.
struct RunCollective {
  std::uint32_t row = 0;  // The row of the timeline's table; kNone for a collective that a question adds.
  std::uint64_t comm = 0;
  CollectiveKind kind = CollectiveKind::kNone;
  std::uint64_t bytes = 0;
  std::uint32_t members = 0;
  // After all have arrived and it is its turn, if a question sets it; -1: as measured.
  std::int64_t transfer_ns = -1;
  // From then until a rank has left, if a question sets it.
  std::int64_t exit_ns = 0;
};

// The reductions of gradients, which are the same in all steps.
struct BucketSequence {
  std::uint64_t comm = 0;
  std::vector<std::uint64_t> bytes;        // In the order in which they are launched.
  std::vector<std::uint32_t> first;        // [step]: index in `collectives` of the first of bytes.size().
  std::vector<std::uint32_t> collectives;  // Indices in RecordedRun::collectives, by step and launch order.
  std::vector<Gradient> gradients;         // The gradients in them; empty if unknown.
  std::uint64_t total_bytes() const;
};

// The bytes of the buckets that a cap gives: by DDP's rule if the sizes of the gradients are known. If these are
// unknown, buckets end where measured ones ended, if that is within a quarter of the cap after the limit, otherwise at
// the limit itself (`interpolated`).
struct BucketSizes {
  std::vector<std::uint64_t> bytes;
  bool interpolated = false;
};
BucketSizes SizesFor(const BucketSequence& buckets, std::uint64_t first_bytes, std::uint64_t cap_bytes);

// The durations of the reductions in the replay of the recorded run.
struct ReductionTimes {
  // By step and launch order, as BucketSequence::collectives; median over ranks. Of those that threads of a rank carry
  // beside each other each one's part of the time: they share the network and the cores, and new ones come one after
  // the other.
  std::vector<std::int64_t> transfer_ns;
  std::int64_t exit_ns = 0;         // Median time until the other ranks have left as well.
  std::vector<double> step_factor;  // [step]: the time of all of its reductions relative to the costs.
};
// `job` is made of the run.
class RecordedRun;
ReductionTimes TimesOf(const RecordedRun& run, const BucketSequence& buckets, const Job& job);
void FitSteps(const BucketSequence& buckets, const CostModel& costs, ReductionTimes& times);

}  // namespace lockstep::replay
