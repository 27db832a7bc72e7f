#pragma once
// The process that finds names for stacks: lockstep-stacks (runtime/unwind). It reads large foreign files with a large
// library, so it is none of the agent's threads: if it fails, a stack has no names.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/file_lock.h"

namespace lockstep::agent {

class StackNames {
 public:
  // `program` "": there is none. `restore_signals` as in StackReader::Setup.
  StackNames(std::string program, std::function<void()> restore_signals)
      : program_(std::move(program)), restore_signals_(std::move(restore_signals)) {}
  StackNames(const StackNames&) = delete;
  StackNames& operator=(const StackNames&) = delete;
  ~StackNames() { End(); }

  bool busy() const { return asked_ns_ != 0; }
  // Of a request that was asked. False: there is no process that could be asked, and will be none.
  bool Ask(std::string_view request);
  // The answer, once; "" if the process failed. Never blocks.
  std::optional<std::string> Answer();
  // Why there are no names; "" nothing is known to be wrong.
  const std::string& why() const { return why_; }

 private:
  bool Start();
  void End();
  std::string Fail(const char* why);

  std::string program_;
  std::function<void()> restore_signals_;
  OwnedFd socket_, file_;
  pid_t process_ = -1;
  std::int64_t asked_ns_ = 0;  // 0: nothing is being asked.
  std::string line_, why_;
  int failures_ = 0;
};

}  // namespace lockstep::agent
