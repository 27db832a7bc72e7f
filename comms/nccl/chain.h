#pragma once
// Calls the profiler plugin that the user had set in NCCL_PROFILER_PLUGIN, because NCCL loads only one. The plugin is
// found as NCCL finds it, gets the events that its own mask requests and no others, with its own contexts and handles,
// whether this process records or not.

#include <cstdint>

#include "comms/nccl/profiler_abi.h"
#include "comms/nccl/state.h"

// plugin.cc: the symbols that NCCL looks for.
#pragma GCC visibility push(default)
extern "C" {
extern lockstep::nccl::profiler::TableV4 ncclProfiler_v4;
extern lockstep::nccl::profiler::TableV5 ncclProfiler_v5, ncclProfiler_v6;
extern lockstep::nccl::profiler::TableV7 ncclProfiler_v7;
}
#pragma GCC visibility pop

namespace lockstep::nccl::chain {

// Whether there is a plugin that supports a host of that version (4 to 7). Loads it at the first call, which is a
// communicator's init, where NCCL itself loads plugins. Thread: any.
bool Open(int host_version);
// The same for later events.
bool Active(int host_version);

void Init(Comm& comm, const char* name, profiler::Logger log);
void Finalize(Comm& comm);

// Passes an event on; the plugin's handle is kept under the number that is returned. 0: the plugin did not get the
// event, because it did not request it or too many events are open. `event` of a host of version 7 is a DescriptorV7,
// which begins like a Descriptor.
std::uint64_t Start(int host_version, Comm* comm, const profiler::Descriptor& event);
void Stop(std::uint64_t number);
void Record(std::uint64_t number, int state, profiler::StateArgs* arguments);

// Handles of this plugin that carry a number of the chained one's: see plugin.cc.
inline constexpr std::uint64_t kChained = std::uint64_t{1} << 58;
inline constexpr std::uint64_t kNumber = kChained - 1;

// Copies a host's descriptor into the layout of later versions.
profiler::Descriptor Newest(const profiler::DescriptorV4& event);

}  // namespace lockstep::nccl::chain
