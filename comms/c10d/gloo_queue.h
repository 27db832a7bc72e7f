#pragma once
// What ProcessGroupGloo was asked for and has not begun: which group each work is on, in which order.
//
// PyTorch's observers tell of a work when a thread of the backend begins it, and then neither the group nor the order
// of the calls is known. Both are where it enters the group's queue: ProcessGroupGloo::enqueue, on the calling thread,
// and AsyncWork::execute, on the backend's thread, are called through libtorch's symbol table (1.13 to 2.15), so that
// the preloaded functions of these names are called and call them. A PyTorch without them records works of unknown
// order.
//
// The observers tell of a work's end after those who wait for it were woken, which is milliseconds later where cores
// are short. AsyncWork::finishWorkGloo, which wakes them, is called the same way once the data are there.

#include <cstdint>

namespace lockstep::c10d {

struct Group;

struct QueuedWork {
  Group* group = nullptr;            // Null: nothing is known of it.
  std::uint64_t seq = 0, ticks = 0;  // Number on the group; when it was handed over.
  std::int32_t peer = -1;            // World rank of the root, as the call said.
  std::uint32_t stack = 0;           // Of ring::CallStack().
};

struct ExecutedWork {
  QueuedWork queued;
  std::uint64_t recorded_as = 0;  // TorchBeginRecord::work; 0: it is not recorded.
  std::uint64_t done_ticks = 0;   // When its data were there; 0: not yet, or not seen.
};

// The work that the calling thread executes; null outside of AsyncWork::execute.
ExecutedWork* Executing();
// Whether any was seen to enter a queue: then one that was not is of no known group.
bool SeesQueues();

}  // namespace lockstep::c10d
