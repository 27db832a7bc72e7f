#pragma once
// What PyTorch and its hooks call communication that goes through torch.distributed: names of ranges.

#include <string_view>

namespace lockstep {

// The host's call: it lasts as long as the caller is in it. "c10d::" is the dispatcher's and runtime/python's prefix.
constexpr bool IsDistributedCall(std::string_view name) {
  return name.starts_with("c10d::") || name == "record_param_comms";
}
// The operation itself, from when it was handed over to its end, whatever its caller does meanwhile. Backends
// that work on the host name theirs so.
constexpr bool IsHostOperation(std::string_view name) { return name.starts_with("gloo:") || name.starts_with("ucc:"); }

}  // namespace lockstep
