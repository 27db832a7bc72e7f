#include "analysis/replay/graph/rebucket.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/core/statistics.h"

namespace lockstep::replay {

std::uint64_t BucketSequence::total_bytes() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

BucketSizes SizesFor(const BucketSequence& buckets, std::uint64_t first_bytes, std::uint64_t cap_bytes) {
  BucketSizes sizes;
  if (!buckets.gradients.empty()) {
    for (const GradientBucket& bucket : AssignBuckets(buckets.gradients, first_bytes, cap_bytes))
      sizes.bytes.push_back(bucket.bytes);
    return sizes;
  }
  std::vector<std::uint64_t> ends;
  std::uint64_t total = 0;
  for (const std::uint64_t bytes : buckets.bytes) ends.push_back(total += bytes);
  std::uint64_t at = 0;
  while (at < total) {
    const std::uint64_t limit = std::max<std::uint64_t>(1, sizes.bytes.empty() ? first_bytes : cap_bytes);
    if (limit >= total - at) {
      sizes.bytes.push_back(total - at);
      break;
    }
    const auto end = std::lower_bound(ends.begin(), ends.end(), at + limit);
    if (*end - at - limit <= limit / 4) {
      sizes.bytes.push_back(*end - at);
    } else {
      sizes.bytes.push_back(limit);
      sizes.interpolated = true;
    }
    at += sizes.bytes.back();
  }
  return sizes;
}

ReductionTimes TimesOf(std::size_t collectives, const BucketSequence& buckets, const Job& job) {
  ReductionTimes times;
  std::vector<std::uint32_t> place(collectives, kNone);
  for (std::uint32_t i = 0; i < buckets.collectives.size(); ++i) place[buckets.collectives[i]] = i;
  std::vector<std::vector<std::int64_t>> took(buckets.collectives.size());
  std::vector<std::int64_t> exits;
  for (std::size_t i = 0; i < job.operations.size(); ++i) {
    const JobOperation& about = job.operations[i];
    if (about.collective == kNone || place[about.collective] == kNone) continue;
    const std::int64_t ns = job.graph.operations()[i].duration_ns;
    if (about.role == Role::kMember) took[place[about.collective]].push_back(ns);
    if (about.role == Role::kExit) exits.push_back(ns);
  }
  for (auto& each : took) times.transfer_ns.push_back(LowerMedian(std::move(each)));
  times.exit_ns = LowerMedian(std::move(exits));
  return times;
}

void FitSteps(const BucketSequence& buckets, const CostModel& costs, ReductionTimes& times) {
  for (const std::uint32_t first : buckets.first) {
    double took = 0, expected = 0;
    for (std::size_t k = 0; k < buckets.bytes.size(); ++k) {
      took += static_cast<double>(times.transfer_ns[first + k]);
      if (const auto cost = costs.At(buckets.bytes[k])) expected += cost->ns;
    }
    times.step_factor.push_back(expected > 0 ? took / expected : 1);
  }
}

Result<std::vector<RunCollective>> NewReductions(const BucketSequence& buckets, const std::vector<std::uint64_t>& bytes,
                                                 const CostModel& costs, const ReductionTimes& times,
                                                 std::size_t members, const char* remedy) {
  std::vector<RunCollective> reductions;
  for (std::size_t step = 0; step < buckets.first.size(); ++step)
    for (const std::uint64_t each : bytes) {
      const auto cost = costs.At(each);
      if (!cost) return Error{ErrorCode::kUnsupported, "the run has no transfer that a cost table can use", "", remedy};
      RunCollective made;
      made.row = kNone;
      made.comm = buckets.comm;
      made.kind = CollectiveKind::kAllReduce;
      made.bytes = each;
      made.members = static_cast<std::uint32_t>(members);
      made.transfer_ns = std::llround(cost->ns * times.step_factor[step]);
      made.exit_ns = times.exit_ns;
      reductions.push_back(made);
    }
  return reductions;
}

}  // namespace lockstep::replay
