#pragma once
// Which events NCCL gives to a plugin: one int in each libnccl, whose address init() is
// given and which NCCL reads when an operation is called, so changing it tears no operation
// apart. While recording is off it is 0, and NCCL spends nothing on us.
//
// That needs somebody who turns it on again in time. Threads of this process do, through
// the probe's switch; the agent and other processes of the slot cannot. So it only rests
// where recording will be switched on by this process; elsewhere NCCL keeps calling, and
// events are dropped in the callback, which costs some nanoseconds each.

#include <cstdint>

namespace lockstep::nccl {

// A communicator of the libnccl with that mask begins: counts, sets the mask. `wanted`: while recording. Index for
// CloseMask, 0xff if there are too many libraries (the mask stays as set). Thread: any, without locks; so are all
// below.
std::uint8_t OpenMask(int* mask, int wanted);
// One ends. After the last one the library may be unmapped: the address is forgotten.
void CloseMask(std::uint8_t index);
// What a chained plugin wants, ORed to ours. It never rests then: another's change of that is not reported.
void ChainedMask(int bits);
// Sets masks that rest although recording is on (another process switched it on). Cheap when there is nothing to do.
void WakeMasks();

}  // namespace lockstep::nccl
