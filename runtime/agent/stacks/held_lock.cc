#include "runtime/agent/stacks/held_lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>

#include <algorithm>

namespace lockstep::agent {

FutexWait FutexOf(const ThreadState& state) {
  if (state.state != 'S' || !state.in_kernel || state.call != SYS_futex) return {};
  const auto operation = static_cast<std::uint32_t>(state.arguments[1]) & FUTEX_CMD_MASK;
  if (operation != FUTEX_WAIT && operation != FUTEX_WAIT_BITSET && operation != FUTEX_LOCK_PI) return {};
  return {state.arguments[0], operation, static_cast<std::uint32_t>(state.arguments[2])};
}

HeldLock LockOf(const ProcessMemory& memory, pid_t thread, const FutexWait& futex, const std::vector<pid_t>& threads,
                const PythonReader* python, const std::map<pid_t, std::uint64_t>& states) {
  if (futex.address == 0) return {};
  if (python != nullptr) {
    // Who waits for it sleeps in its condition variable.
    for (const PythonReader::Gil& gil : python->Gils(memory)) {
      if (futex.address < gil.begin || futex.address >= gil.end) continue;
      const auto holder = std::find_if(states.begin(), states.end(),
                                       [&](const auto& each) { return gil.holder != 0 && each.second == gil.holder; });
      const bool other = holder != states.end() && holder->first != thread;
      return {"Python's GIL", other ? holder->first : 0};
    }
  }
  std::uint32_t word = 0;
  if (!memory.Get(futex.address, word)) return {};
  pid_t owner = 0;
  if (futex.operation == FUTEX_LOCK_PI) {
    owner = static_cast<pid_t>(word & FUTEX_TID_MASK);
  } else {
    // struct __pthread_mutex_s: __lock, which is 2 while somebody waits, __count, __owner.
    constexpr std::uint32_t kContended = 2;
    constexpr std::uint64_t kOwner = 8;
    if (futex.value != kContended || word != kContended || !memory.Get(futex.address + kOwner, owner)) return {};
  }
  if (owner == thread || std::find(threads.begin(), threads.end(), owner) == threads.end()) return {};
  return {"a lock", owner};
}

}  // namespace lockstep::agent
