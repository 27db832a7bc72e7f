#pragma once
// Computes which gradients PyTorch's DistributedDataParallel reduces together (torch/csrc/distributed/c10d/reducer.cpp,
// compute_bucket_assignment_by_size).

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analysis/rules/replay.h"
#include "core/collective.h"

namespace lockstep::replay {

struct Gradient {
  std::uint64_t bytes = 0;
  DataType dtype = DataType::kFloat32;
  std::int32_t device = 0;
  friend bool operator==(const Gradient&, const Gradient&) = default;
};

struct GradientBucket {
  std::vector<std::size_t> gradients;  // Indices into the argument, in its order.
  std::uint64_t bytes = 0;
};

// `gradients` in the order in which DDP processes them: from its second step on the order of arrival. Per (dtype,
// device): a gradient is added, and the bucket is closed when it has reached its limit: the first one `first_bytes`,
// each later one `cap_bytes`. Gradients are never split, so buckets exceed the limit. Buckets are in the order in which
// DDP launches them: those closed in the order of closing, then those that were not, by their first gradient. With a
// limit of 0 every gradient is a bucket.
std::vector<GradientBucket> AssignBuckets(std::span<const Gradient> gradients, std::uint64_t first_bytes,
                                          std::uint64_t cap_bytes);

// Returns one cap for each assignment that caps can give, ascending: the largest that gives it. With the last one no
// bucket is closed by the cap. At most `limit`, spread over the range. `first_follows`: the first bucket's limit is the
// cap, and `first_bytes` at most.
std::vector<std::uint64_t> DistinctCaps(std::span<const Gradient> gradients, std::uint64_t first_bytes,
                                        std::size_t limit = rules::kBucketCapsListed, bool first_follows = false);

// What to write in the program for buckets of these limits: the cap alone, and, if the first bucket's limit differs
// from the default (1 MiB), the setting that changes it. DDP closes the first bucket at
// torch.distributed._DEFAULT_FIRST_BUCKET_BYTES, whatever the cap is (torch/nn/parallel/distributed.py of 1.13); newer
// versions do so if no cap is given, and close it at the cap if one is (2.11). With both set to one value all versions
// do the same. `total_bytes`: of all gradients.
std::string DdpSettings(std::uint64_t first_bytes, std::uint64_t cap_bytes, std::uint64_t total_bytes);

}  // namespace lockstep::replay
