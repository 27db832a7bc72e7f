#include "runtime/probe/range_memory.h"

#include <string.h>
#include <sys/mman.h>

#include "runtime/probe/ring.h"

namespace lockstep::probe {

RangeMemory* RangeMemoryOf(RingPage& page) {
  if (page.producer.ranges == nullptr) {
    const ErrnoKeeper errno_keeper;
    void* memory = mmap(nullptr, sizeof(RangeMemory), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) page.producer.ranges = memory;
  }
  return static_cast<RangeMemory*>(page.producer.ranges);
}

void FreeRangeMemory(void* memory) {
  if (memory != nullptr) munmap(memory, sizeof(RangeMemory));
}

void KeepName(RangeMemory::Name& kept, const char* name) {
  const std::size_t bytes = name == nullptr ? 0 : strnlen(name, sizeof kept);
  memcpy(kept, name, bytes < sizeof kept ? bytes : 0);
  kept[bytes < sizeof kept ? bytes : 0] = 0;
}

}  // namespace lockstep::probe
