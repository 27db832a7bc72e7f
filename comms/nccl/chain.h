#pragma once
// The profiler plugin that the user had set in NCCL_PROFILER_PLUGIN: there is room for one,
// so ours calls it. It is found as NCCL finds it, gets what its own mask asks for and
// nothing else, with its own contexts and handles, whether this process records or not.

#include <cstdint>

#include "comms/nccl/profiler_abi.h"
#include "comms/nccl/state.h"

// plugin.cc: what NCCL looks for.
#pragma GCC visibility push(default)
extern "C" {
extern lockstep::nccl::profiler::TableV4 ncclProfiler_v4;
extern lockstep::nccl::profiler::TableV5 ncclProfiler_v5, ncclProfiler_v6;
extern lockstep::nccl::profiler::TableV7 ncclProfiler_v7;
}
#pragma GCC visibility pop

namespace lockstep::nccl::chain {

// Whether there is one that understands what a host of that version (4 to 7) says. Loads it at the first call,
// which is a communicator's init: NCCL itself loads plugins there. Thread: any.
bool Open(int host_version);
// The same afterwards, for every event.
bool Active(int host_version);

void Init(Comm& comm, const char* name, profiler::Logger log);
void Finalize(Comm& comm);

// Its handle is kept under `number`, 0 if it did not get the event: it did not ask, or too many events are open.
// `event` of a host of version 7 is a DescriptorV7, which begins like that.
std::uint64_t Start(int host_version, Comm* comm, const profiler::Descriptor& event);
void Stop(std::uint64_t number);
void Record(std::uint64_t number, int state, profiler::StateArgs* arguments);

// Handles of ours that carry a number of its: see plugin.cc.
inline constexpr std::uint64_t kChained = std::uint64_t{1} << 58;
inline constexpr std::uint64_t kNumber = kChained - 1;

// Copy of a host's descriptor in the layout of the versions after it.
profiler::Descriptor Newest(const profiler::DescriptorV4& event);

}  // namespace lockstep::nccl::chain
