#pragma once
// Per-thread data of range sources beside the ring's page, in private memory that is allocated when it is first needed:
// space for a converted text, and names of open ranges while a capture window examines them (a ring only has their
// numbers).

#include <cstdint>

#include "core/ring_writer.h"
#include "runtime/probe/nvtx.h"

namespace lockstep::probe {

struct RangeMemory {
  // Longer names match no window, so they need not be kept.
  using Name = char[kWindowNameBytes];
  char text[kMaxStringBytes + 16];
  Name lockstep[kMaxRangeDepth];
  Name nvtx[kMaxRangeDepth + kDeepNvtxRanges];
  // Open calls of NCCL, by their index in RingHeader::nvtx, and how many there are.
  NcclRange nccl[kMaxRangeDepth];
  std::uint32_t nccl_open;
};

// The thread's; null if the system refuses. Thread: the page's own.
RangeMemory* RangeMemoryOf(RingPage& page);
void FreeRangeMemory(void* memory);
// "" if it is too long or null.
void KeepName(RangeMemory::Name& kept, const char* name);

}  // namespace lockstep::probe
