#include "examples/ddp_mpi/buckets.h"

#include <utility>

namespace lockstep::example {

std::vector<Bucket> AssignBuckets(const std::vector<std::uint64_t>& tensor_bytes, std::uint64_t first_limit_bytes,
                                  std::uint64_t cap_bytes) {
  std::vector<Bucket> buckets;
  Bucket open;
  for (std::size_t i = tensor_bytes.size(); i-- > 0;) {
    open.tensors.push_back(i);
    open.bytes += tensor_bytes[i];
    const std::uint64_t limit = buckets.empty() ? first_limit_bytes : cap_bytes;
    if (open.bytes >= limit) buckets.push_back(std::exchange(open, {}));
  }
  if (!open.tensors.empty()) buckets.push_back(std::move(open));
  return buckets;
}

}  // namespace lockstep::example
