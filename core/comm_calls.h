#pragma once
// The names of ranges in which PyTorch and its hooks record communication through torch.distributed.

#include <initializer_list>
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
// An operator in which a compiled program hands operations over and waits for them: it works on nothing meanwhile.
constexpr bool IsFunctionalCollective(std::string_view name) {
  return name.starts_with("_c10d_functional::") || name.starts_with("c10d_functional::");
}
// The backend of an operation that the host carries out, from its begin to its end, whatever its caller does meanwhile
// ("gloo" of "gloo:all_reduce"); "" of all else. "nccl:all_reduce" only enqueues.
constexpr std::string_view HostBackend(std::string_view name) {
  for (const std::string_view backend : {"gloo", "mpi", "ucc"})
    if (name.starts_with(backend) && name.substr(backend.size()).starts_with(':') &&
        !name.substr(backend.size()).starts_with("::"))
      return backend;
  return {};
}

}  // namespace lockstep
