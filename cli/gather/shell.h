#pragma once
// Runs a script in a shell on another host, or on this one.

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file_lock.h"
#include "core/result.h"

namespace lockstep::cli {

struct ShellEnd {
  int exit_code = 0;      // 128 + N for signal N.
  std::string last_line;  // Of what it said on standard error; "" if nothing.
};

// `words`: the program and its arguments, looked for in PATH. The script is its standard input, so that nothing in it
// passes through the words of a command line, which each remote shell quotes in its own way. `take` gets the standard
// output in pieces; if it returns false, the program is ended. kNotFound, kIo if the program could not be started.
Result<ShellEnd> RunShell(const std::vector<std::string>& words, const std::string& script,
                          const std::function<bool(std::string_view)>& take);

// A program that reads what Write gives it, such as tar. It is ended and waited for by the destructor or Finish.
class Consumer {
 public:
  static Result<Consumer> Start(const std::vector<std::string>& words);
  Consumer(Consumer&& other) noexcept;
  Consumer& operator=(Consumer&&) = delete;
  ~Consumer();
  // Returns false once the program does not read any more.
  bool Write(std::string_view data);
  // Closes its input and waits for its end.
  ShellEnd Finish();

 private:
  Consumer(int pid, OwnedFd input, OwnedFd errors) : pid_(pid), input_(std::move(input)), errors_(std::move(errors)) {}
  int pid_;
  OwnedFd input_, errors_;
};

}  // namespace lockstep::cli
