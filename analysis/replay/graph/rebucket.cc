#include "analysis/replay/graph/rebucket.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "analysis/core/statistics.h"
#include "analysis/replay/graph/gradients.h"
#include "analysis/replay/graph/recorded_run.h"
#include "analysis/replay/graph/units.h"
#include "analysis/rules/replay.h"

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
    if (*end - at - limit <= limit / rules::kBucketEndWithinPartOfCap) {
      sizes.bytes.push_back(*end - at);
    } else {
      sizes.bytes.push_back(limit);
      sizes.interpolated = true;
    }
    at += sizes.bytes.back();
  }
  return sizes;
}

ReductionTimes TimesOf(const RecordedRun& run, const BucketSequence& buckets, const Job& job) {
  ReductionTimes times;
  std::vector<std::uint32_t> place(run.collectives.size(), kNone);
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
  const std::vector<double> parts = run.PartsOfTime(buckets);
  for (std::size_t i = 0; i < parts.size(); ++i)
    times.transfer_ns[i] = std::llround(static_cast<double>(times.transfer_ns[i]) * parts[i]);
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

// `more_than`: bytes of the reductions that count.
std::optional<BucketSequence> RecordedRun::BucketsOf(const UnitCollectives& units, std::uint64_t more_than) const {
  const auto reduces = [&](const Launch& launch) {
    const RunCollective& c = collectives[launch.collective];
    return c.kind == CollectiveKind::kAllReduce && c.members == ranks.size() && c.bytes > more_than &&
           !units.reductions[launch.collective];
  };
  const std::vector<Launch> launches = LaunchesOfFirstRank();
  std::map<std::uint64_t, std::uint64_t> carried;  // By communicator.
  for (const Launch& launch : launches)
    if (reduces(launch)) carried[collectives[launch.collective].comm] += collectives[launch.collective].bytes;
  if (carried.empty()) return std::nullopt;
  const auto most = std::max_element(carried.begin(), carried.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  // What is beside the units of sharded parameters is a loss or a norm, and no bucket of gradients.
  if (most->second <= units.reduced_bytes) return std::nullopt;
  BucketSequence buckets;
  buckets.comm = most->first;
  std::vector<std::vector<std::uint32_t>> by_step(steps.size());
  for (const Launch& launch : launches)
    if (launch.step < by_step.size() && reduces(launch) && collectives[launch.collective].comm == buckets.comm)
      by_step[launch.step].push_back(launch.collective);
  for (const std::vector<std::uint32_t>& step : by_step) {
    std::vector<std::uint64_t> bytes;
    for (const std::uint32_t collective : step) bytes.push_back(collectives[collective].bytes);
    if (buckets.first.empty()) buckets.bytes = bytes;
    if (bytes.empty() || bytes != buckets.bytes) return std::nullopt;
    buckets.first.push_back(static_cast<std::uint32_t>(buckets.collectives.size()));
    buckets.collectives.insert(buckets.collectives.end(), step.begin(), step.end());
  }
  return buckets;
}

// A loss that is averaged beside the gradients is no bucket. It may be in each step or in some: what the framework
// says of its gradients decides, else what is the same in all steps.
std::optional<BucketSequence> RecordedRun::FindBuckets() const {
  const UnitCollectives units = FindUnits(*this);
  std::optional<BucketSequence> found;
  for (const std::uint64_t more_than : {std::uint64_t{0}, rules::kTinyTransferBytes}) {
    std::optional<BucketSequence> buckets = BucketsOf(units, more_than);
    if (!buckets) continue;
    for (const std::vector<Gradient>& model : gradients)
      if (MakeUp(model, buckets->bytes)) return buckets;
    if (!found) found = std::move(buckets);
  }
  return found;
}

Result<std::unique_ptr<RecordedRun>> RecordedRun::Rebucket(const BucketSequence& buckets,
                                                           const std::vector<std::uint64_t>& bytes,
                                                           const CostModel& costs, const ReductionTimes& times) const {
  std::vector<RunCollective> reductions;
  for (std::size_t step = 0; step < buckets.first.size(); ++step)
    for (const std::uint64_t each : bytes) {
      const auto cost = costs.At(each);
      if (!cost)
        return Error{ErrorCode::kUnsupported, "the run has no transfer that a cost table can use", "",
                     moves_in_calls() ? "record steps whose reductions are seen to end: poll them, or wait for each"
                                      : "record steps whose reductions do not all take no time"};
      reductions.push_back({.row = kNone,
                            .comm = buckets.comm,
                            .kind = CollectiveKind::kAllReduce,
                            .bytes = each,
                            .members = static_cast<std::uint32_t>(ranks.size()),
                            .transfer_ns = std::llround(cost->ns * times.step_factor[step]),
                            .exit_ns = times.exit_ns});
    }
  std::unique_ptr<RecordedRun> changed = WithReductions(buckets, bytes, static_cast<std::uint32_t>(collectives.size()));
  changed->collectives.insert(changed->collectives.end(), reductions.begin(), reductions.end());
  return changed;
}

}  // namespace lockstep::replay
