#pragma once
// Stops a thread of another process for as long as something is read of it, and lets it go on as if nothing had been.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::agent {

// In the order of DWARF's numbers (x86-64: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15, return address).
inline constexpr std::size_t kRegisters = 17;
inline constexpr std::size_t kStackRegister = 7, kCounterRegister = 16;

struct Registers {
  std::uint64_t value[kRegisters] = {};
};

// Thread: one, always the same: the kernel knows the tracer by it.
class ThreadStopper {
 public:
  enum class Outcome {
    kDone,
    kGone,       // The thread or its process has ended.
    kForbidden,  // Somebody else traces it, or the system does not allow it: errno says EPERM.
    kLate,       // It did not stop in time. It is let go when it does.
  };
  ThreadStopper() = default;
  ThreadStopper(const ThreadStopper&) = delete;
  ThreadStopper& operator=(const ThreadStopper&) = delete;
  ~ThreadStopper();

  // Calls `look` while the thread is stopped. `own_child`: `pid` is a child of this process, whose end is to be left to
  // who waits for it.
  Outcome Stop(pid_t pid, pid_t thread, bool own_child, const std::function<void(const Registers&)>& look);
  // Lets those go that stopped too late. Never blocks.
  void Settle();
  std::size_t unsettled() const { return late_.size(); }
  // From when this thread saw it stopped until it could run again.
  std::int64_t last_stop_ns() const { return last_stop_ns_; }
  std::uint64_t mended() const { return mended_; }

 private:
  struct Traced {
    pid_t pid = 0, thread = 0;
    bool own_child = false;
  };
  enum class Wait { kNotYet, kStopped, kEnded };
  // With `signal`: what is to be delivered when it goes on.
  static Wait Look(const Traced& traced, int& signal);
  static bool Follow(Traced& traced);
  void MendCall(const Traced& traced, int signal);

  std::vector<Traced> late_;
  std::int64_t last_stop_ns_ = 0;
  std::uint64_t mended_ = 0;  // Calls that the stop had ended and that were begun again.
};

}  // namespace lockstep::agent
