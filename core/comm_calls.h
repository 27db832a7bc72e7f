#pragma once
// The names of ranges in which PyTorch and its hooks record communication through torch.distributed.

#include <string_view>

namespace lockstep {

// The host's call, which lasts until it returns. "c10d::" is the prefix of the dispatcher and of runtime/python.
constexpr bool IsDistributedCall(std::string_view name) {
  return name.starts_with("c10d::") || name == "record_param_comms";
}
// Of these, waiting for operations that other calls began.
constexpr bool IsDistributedWait(std::string_view name) { return name == "c10d::wait"; }
// The ranges of PyTorch's hook in which the training thread hands over a bucket; other programs may use the name too.
inline constexpr std::string_view kGivesBucketAway = "ddp bucket";
// The operation itself, from its hand-over to its end, whatever its caller does meanwhile. Backends that work on the
// host use such names.
constexpr bool IsHostOperation(std::string_view name) { return name.starts_with("gloo:") || name.starts_with("ucc:"); }

}  // namespace lockstep
