#pragma once
// NCCL's names of functions and types as numbers, and as ids of the thread's ring.

#include <cstdint>

#include "core/collective.h"
#include "core/ring_writer.h"

namespace lockstep::nccl {

// "AllReduce", "Send": as the profiler names them. kNone: not known.
CollectiveKind FunctionOf(const char* name);
// 0 send, 1 receive, 2 something else of that kind (AlltoAll, Gather and Scatter are sends and receives to NCCL).
std::uint8_t DirectionOf(const char* name);
// "ncclFloat32".
DataType TypeOf(const char* name);

// What this source keeps for a thread's ring, in addition to the probe's state.
struct RingMemory {
  std::uint64_t owner;   // The owner: the ring's generation and the process, because rings are reused by other threads.
  std::uint64_t closed;  // The last API event that this thread ended.
  struct Name {
    const char* at;
    std::uint32_t id;
    char text[20];
  } names[16];
};
RingMemory& MemoryOf(const RingPage& page);

// The thread's id of a text, 0 none. The texts belong to libnccl and are found by address. They are compared too,
// because libnccl may be unmapped and another text be at the address.
std::uint32_t NameId(RingMemory& memory, const char* text);

}  // namespace lockstep::nccl
