#pragma once
// The application as a child process, and the signals around it.

#include <sys/resource.h>
#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "comms/launch/launch_env.h"
#include "core/result.h"
#include "runtime/agent/slot/receipts.h"

namespace lockstep::agent {

// Signals become readable (signalfd) instead of interrupting. The application gets back the mask and dispositions that
// this process was started with.
class SignalGate {
 public:
  // Blocks what the agent handles. Thread: before any other thread exists.
  static Result<SignalGate> Open();
  SignalGate(SignalGate&& other) noexcept;
  SignalGate& operator=(SignalGate&&) = delete;
  ~SignalGate();  // Restores mask and dispositions.

  int fd() const { return fd_; }
  // The next signal that this process has received; does not wait.
  std::optional<Received> Read() const;
  // In the child, between fork and exec.
  void RestoreInChild() const;

 private:
  SignalGate() = default;
  int fd_ = -1;
  sigset_t old_mask_{};
  struct sigaction old_child_ {
  }, old_pipe_{}, old_file_size_{};
};

// Signals that end a program by default and that users send for that purpose.
bool Ends(int signal);

// Sends on what was received.
void SendSignal(pid_t pid, const Received& received);

// The application has its own copies of the standard streams. When it closes them, the processes at the other ends must
// see that, so this process must not keep them open.
void LeaveStandardStreams();

// Ends this process as another one ended: by the same signal, without a core file of our own, or with the same code.
[[noreturn]] void EndLike(int code, int signal);

struct ChildExit {
  bool ended = false;
  int code = 0;  // Valid if signal == 0.
  int signal = 0;
  struct rusage usage {};  // Usage of the child and of the descendants that it waited for.
};

class Child {
 public:
  // Starts `command` (looked up in PATH) as `launcher` would (ExecAs), with `environment` ("NAME=value"), same
  // standard streams, process group and limits. On failure pid() is -1 and
  // start_errno() says why exec refused. `ignored_signal` starts out ignored in it: its
  // default action would end a program that does not expect it. 0 none.
  static Result<Child> Start(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                             const SignalGate& gate, launch::LaunchSource launcher, int ignored_signal = 0);
  pid_t pid() const { return pid_; }
  int start_errno() const { return start_errno_; }
  // Does not wait. `ended` is set by one call only.
  ChildExit Poll();
  void Signal(int signal) const { Signal(Received{.signal = signal}); }
  void Signal(const Received& received) const;

 private:
  pid_t pid_ = -1;
  int start_errno_ = 0;
};

}  // namespace lockstep::agent
