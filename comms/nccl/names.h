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

// Of a thread's ring, beside what the probe keeps in it.
struct RingMemory {
  std::uint64_t owner;   // Whose: the ring's generation and the process, as the ring goes from thread to thread.
  std::uint64_t closed;  // The last API event that this thread ended.
  struct Name {
    const char* at;
    std::uint32_t id;
    char text[20];
  } names[16];
};
RingMemory& MemoryOf(const RingPage& page);

// The thread's id of a text, 0 none. The texts are libnccl's, found by address; as libnccl may be unmapped and
// something else be there, they are compared.
std::uint32_t NameId(RingMemory& memory, const char* text);

}  // namespace lockstep::nccl
