#pragma once
// The profiler plugin that the user had set in NCCL_PROFILER_PLUGIN: there is room for one,
// so ours calls it. It is found as NCCL finds it, is told what its own mask asks for and
// nothing else, with its own contexts and handles, whether this process records or not.

#include <cstdint>

#include "comms/nccl/profiler_abi.h"
#include "comms/nccl/state.h"

// plugin.cc: what NCCL looks for.
#pragma GCC visibility push(default)
extern "C" {
extern lockstep::nccl::profiler::TableV4 ncclProfiler_v4;
extern lockstep::nccl::profiler::TableV5 ncclProfiler_v5, ncclProfiler_v6;
}
#pragma GCC visibility pop

namespace lockstep::nccl::chain {

// Whether there is one that understands what a host of that version (4, 5, 6) says. Loads it at the first call,
// which is a communicator's init: NCCL itself loads plugins there. Thread: any.
bool Open(int host_version);
// The same afterwards, for every event.
bool Active(int host_version);

void Init(Comm& comm, const char* name, profiler::Logger log);
void Finalize(Comm& comm);

// Its handle is kept under `number`, 0 if it was not told: it did not ask, or too many events are open.
std::uint64_t Start(Comm* comm, const profiler::Descriptor& event);
void Stop(std::uint64_t number);
void Record(std::uint64_t number, int state, profiler::StateArgs* arguments);

// Handles of ours that carry a number of its: see plugin.cc.
inline constexpr std::uint64_t kChained = std::uint64_t{1} << 58;
inline constexpr std::uint64_t kNumber = kChained - 1;

// Copies of a host's descriptor in the newest layout.
profiler::Descriptor Newest(const profiler::DescriptorV4& event);

}  // namespace lockstep::nccl::chain
