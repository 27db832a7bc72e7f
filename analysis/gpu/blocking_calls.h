#pragma once
// Host calls that wait for the GPU.

#include <cstdint>
#include <vector>

#include "analysis/gpu/launch_index.h"

namespace lockstep::gpu {

// A host call that returned when the GPU was done.
struct BlockingCall {
  std::int64_t begin_ns, end_ns;
  std::uint32_t api;     // Row of api, kNone: only `sync` has it.
  std::uint32_t sync;    // Row of sync, kNone.
  std::uint32_t copy;    // Row of copies that it waited for, kNone.
  std::uint32_t thread;  // kNone unknown.
};
// Host calls that block, by begin: those that api names, copies from the device to
// pageable memory (they return when the copy is done: CUDA Runtime API, "API
// synchronization behavior"), rows of sync whose call is not in the trace.
std::vector<BlockingCall> FindBlockingCalls(const schema::RankTables& tables, const LaunchIndex& launches);

}  // namespace lockstep::gpu
