#pragma once
// What lock a sleeping thread of another process waits for, and which thread has it, as far as the lock tells.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/agent/stacks/process_memory.h"
#include "runtime/agent/stacks/python_frames.h"
#include "runtime/agent/stacks/thread_state.h"

namespace lockstep::agent {

struct HeldLock {
  std::string what;  // "Python's GIL", "a lock"; "" it waits for none that is known.
  pid_t holder = 0;  // 0: nobody has it at this moment, or that is not known.
};

// The futex (futex(2)) that a thread sleeps in; address 0: it does not.
struct FutexWait {
  std::uint64_t address = 0;
  std::uint32_t operation = 0, value = 0;
};
FutexWait FutexOf(const ThreadState& state);

// Python's lock is known by its place, of interpreters that `python` (null: there is none) can read; `states`: its
// PythonReader::Threads. A pthread_mutex_t of glibc is known by its values: it is contended, and what it says of its
// owner is another one of `threads`, those of the process.
HeldLock LockOf(const ProcessMemory& memory, pid_t thread, const FutexWait& futex, const std::vector<pid_t>& threads,
                const PythonReader* python, const std::map<pid_t, std::uint64_t>& states);

}  // namespace lockstep::agent
