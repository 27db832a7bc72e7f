#pragma once
// Which ProcessGroupGloo objects PyTorch makes for a group of torch.distributed.
//
// The constructor is called through libtorch's symbol table, by Python's binding as well as by split_group's C++ (1.13
// to 2.15), so that the preloaded function of its name is called and calls it. Python makes a group on one thread: what
// that thread constructs meanwhile is the group's. With TORCH_DISTRIBUTED_DEBUG=DETAIL a second one is, which carries
// PyTorch's own comparisons of the calls.

#include <cstddef>
#include <cstdint>

namespace lockstep::c10d {

struct Backends {
  static constexpr std::size_t kMost = 4;  // More are not known; PyTorch makes two at most.
  const void* address[kMost];
  std::size_t count = 0;
};

// Those that the calling thread constructed as this rank of so many since lockstep_hook_torch_making, in their order.
Backends TakeBackends(std::int32_t rank, std::int32_t size);

}  // namespace lockstep::c10d
