#pragma once
// The process that launchers see. It waits for the agent, its child, tells it which signals came, and ends as the agent
// ends. If the agent is killed, it adopts the program and ends as the program ends.

#include <sys/types.h>

#include <optional>

#include "core/file_lock.h"
#include "runtime/agent/rings/memory_limits.h"
#include "runtime/agent/slot/child.h"
#include "runtime/agent/slot/receipts.h"

namespace lockstep::agent {

// The agent's end of its connection to the waiter.
class WaiterLink {
 public:
  WaiterLink() = default;
  // Splits this process: the parent becomes the waiter and does not return, the child is the agent. Without a waiter
  // (no process or descriptor was left) this process is the agent. Thread: before any other thread exists.
  // `kills`: as counted before.
  static WaiterLink Split(const SignalGate& gate, const OomKills& kills);

  bool open() const { return socket_.open(); }
  int fd() const { return socket_.get(); }  // To be polled; -1 if not open.
  // The next signal that the waiter has received; `receipts` gets its answers, and hears if it is gone. Does not wait.
  std::optional<Received> Read(Receipts& receipts);
  void Ask();
  // The program has started, and ended: before its end is shown to others.
  void TellProgram(pid_t pid);
  void TellEnd(int code, int signal);
  // From now on the waiter sends signals on to this process.
  void Close() { socket_.Reset(); }

 private:
  OwnedFd socket_;
};

}  // namespace lockstep::agent
