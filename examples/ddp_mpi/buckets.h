#pragma once
// DDP's rule for grouping gradient tensors into buckets.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::example {

struct Bucket {
  std::vector<std::size_t> tensors;  // Registration indices, in launch order.
  std::uint64_t bytes = 0;
};

// Walks the tensors in reverse registration order, appends each to the open
// bucket and closes it once its size has reached the limit: `first_limit_bytes`
// for the first bucket, `cap_bytes` for all others. Tensors are never split.
// (torch 2: compute_bucket_assignment_by_size in torch/csrc/distributed/c10d/reducer.cpp)
std::vector<Bucket> AssignBuckets(const std::vector<std::uint64_t>& tensor_bytes, std::uint64_t first_limit_bytes,
                                  std::uint64_t cap_bytes);

}  // namespace lockstep::example
