#include "analysis/replay/graph/bucket_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <utility>

#include "analysis/rules/replay.h"

namespace lockstep::replay {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

struct Assignment {
  std::vector<GradientBucket> buckets;
  std::uint64_t least_closed_by_cap = 0;  // Bytes; 0: the cap closed none.
};

// `of_first`: the cap is what closes the first bucket, too.
Assignment Assign(std::span<const Gradient> gradients, std::uint64_t first_bytes, std::uint64_t cap_bytes,
                  bool of_first = false) {
  struct Open {
    GradientBucket bucket;
    bool first = true;
  };
  std::map<std::pair<DataType, std::int32_t>, Open> kinds;
  Assignment result;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    Open& open = kinds[{gradients[i].dtype, gradients[i].device}];
    open.bucket.gradients.push_back(i);
    open.bucket.bytes += gradients[i].bytes;
    if (open.bucket.bytes < (open.first ? first_bytes : cap_bytes)) continue;
    if ((of_first || !open.first) &&
        (result.least_closed_by_cap == 0 || open.bucket.bytes < result.least_closed_by_cap))
      result.least_closed_by_cap = open.bucket.bytes;
    result.buckets.push_back(std::exchange(open.bucket, {}));
    open.first = false;
  }
  std::vector<GradientBucket> rest;
  for (auto& [kind, open] : kinds)
    if (!open.bucket.gradients.empty()) rest.push_back(std::move(open.bucket));
  std::sort(rest.begin(), rest.end(),
            [](const GradientBucket& a, const GradientBucket& b) { return a.gradients.front() < b.gradients.front(); });
  std::move(rest.begin(), rest.end(), std::back_inserter(result.buckets));
  return result;
}

// In MiB, as few digits as give these bytes back: a byte more or less may be other buckets.
std::string ShortMebibytes(std::uint64_t bytes) {
  std::string text;
  for (int digits = 4; digits <= 17; ++digits) {
    text = fmt::format("{:.{}g}", static_cast<double>(bytes) / kMiB, digits);
    if (static_cast<std::uint64_t>(std::llround(std::strtod(text.c_str(), nullptr) * kMiB)) == bytes) break;
  }
  return text;
}

}  // namespace

std::vector<GradientBucket> AssignBuckets(std::span<const Gradient> gradients, std::uint64_t first_bytes,
                                          std::uint64_t cap_bytes) {
  return Assign(gradients, first_bytes, cap_bytes).buckets;
}

std::vector<std::uint64_t> DistinctCaps(std::span<const Gradient> gradients, std::uint64_t first_bytes,
                                        std::size_t limit, bool first_follows) {
  std::vector<std::uint64_t> caps;
  std::vector<GradientBucket> last;
  for (std::uint64_t cap = 1; caps.size() <= rules::kBucketCapsSearchedPerListed * limit;) {
    const bool of_first = first_follows && cap <= first_bytes;
    Assignment assignment = Assign(gradients, of_first ? cap : first_bytes, cap, of_first);
    // Nothing changes until the cap exceeds the smallest bucket that it closed.
    const std::uint64_t end = std::max(assignment.least_closed_by_cap, cap);
    const bool same =
        !caps.empty() && std::equal(last.begin(), last.end(), assignment.buckets.begin(), assignment.buckets.end(),
                                    [](const auto& a, const auto& b) { return a.gradients == b.gradients; });
    if (same)
      caps.back() = end;  // The last bucket was closed by the cap, or because there were no more gradients.
    else
      caps.push_back(end);
    if (assignment.least_closed_by_cap == 0) break;
    last = std::move(assignment.buckets);
    cap = end + 1;
  }
  if (caps.size() <= limit || limit < 2) return caps;
  std::vector<std::uint64_t> spread;
  for (std::size_t i = 0; i < limit; ++i) spread.push_back(caps[i * (caps.size() - 1) / (limit - 1)]);
  return spread;
}

std::string DdpSettings(std::uint64_t first_bytes, std::uint64_t cap_bytes, std::uint64_t total_bytes) {
  // A limit larger than all gradients, in whole MiB.
  const std::uint64_t all = (total_bytes + kMiB - 1) / kMiB * kMiB;
  const std::uint64_t first = std::min(first_bytes, all), cap = std::min(cap_bytes, all);
  const std::string ddp = fmt::format("DistributedDataParallel(..., bucket_cap_mb={})", ShortMebibytes(cap));
  if (first == rules::kDdpFirstBucketBytes) return ddp;
  return fmt::format("before the model is wrapped: torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = {}; then {}", first,
                     ddp);
}

}  // namespace lockstep::replay
