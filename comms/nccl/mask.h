#pragma once
// The events that NCCL passes to a plugin: one int in each libnccl, whose address init() is given. NCCL reads
// it when an operation is called, so changing it does not split an operation. While recording is off it is 0,
// and NCCL spends no time on this plugin, but for events that NCCL cannot be asked to omit for a while.
//
// The mask must be set again in time. Threads of this process do so, through the probe's switch; the agent
// and other processes of the slot cannot. So the mask is cleared only where this process will switch
// recording on; elsewhere NCCL keeps calling, and events are dropped in the callback, which costs some
// nanoseconds each.

#include <cstdint>

namespace lockstep::nccl {

// A communicator of the libnccl with that mask begins: counts it and sets the mask. `wanted`: the value while
// recording, `always`: while not. Returns an index for CloseMask, 0xff if there are too many libraries (the mask stays
// as set). Thread: any, without locks; this holds for all functions below.
std::uint8_t OpenMask(int* mask, int wanted, int always);
// A communicator ends. After the last one the library may be unmapped, so the address is forgotten.
void CloseMask(std::uint8_t index);
// The events that a chained plugin wants, ORed to ours. The mask is never cleared then, because changes of the chained
// plugin's mask are not reported.
void ChainedMask(int bits);
// Sets masks that are cleared although recording is on (another process switched it on). Cheap when there is nothing to
// do.
void WakeMasks();

}  // namespace lockstep::nccl
