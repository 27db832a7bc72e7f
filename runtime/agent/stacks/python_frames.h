#pragma once
// The frames of Python code of another process, read from its memory: no code runs in it, and it need not stop.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/python_code.h"
#include "core/python_layout.h"
#include "runtime/agent/stacks/process_memory.h"

namespace lockstep::agent {

// "3.11"; "" for 0.
std::string VersionText(std::uint32_t version);

struct PythonFrame {
  std::string function, path;  // "Loader.collate", "/job/train.py".
  std::int32_t line = 0;       // 0 unknown.
  bool last_of_loop = false;   // The outermost of a call of the interpreter's loop.
};

// Without names: while its thread is stopped there is time for no more.
struct RawPythonStack {
  std::vector<RawPythonFrame> frames;  // Innermost first.
  bool cut = false;                    // There are more.
};

class PythonReader {
 public:
  // What is known of the interpreter in a process.
  enum class Found { kNone, kReadable, kNotCovered };
  // Looks for an interpreter in what is mapped.
  explicit PythonReader(const std::vector<Mapping>& mappings);
  // Before the following; false: its version is not covered.
  bool ReadHead(const ProcessMemory& memory);
  Found found() const { return found_; }
  // Of the interpreter, "3.9"; "" not known.
  std::string version() const { return VersionText(version_); }
  // The file that holds it: its native frames are the interpreter's own.
  const std::string& path() const { return path_; }

  // Thread states by the kernel's number of their thread. `threads`: all of the process.
  std::map<pid_t, std::uint64_t> Threads(const ProcessMemory& memory, const std::vector<pid_t>& threads) const;
  RawPythonStack Walk(const ProcessMemory& memory, std::uint64_t thread_state) const;
  std::vector<PythonFrame> Name(const ProcessMemory& memory, const RawPythonStack& stack) const;

  // A lock of an interpreter (the GIL): who waits for it sleeps in a futex between `begin` and `end`.
  struct Gil {
    std::uint64_t begin = 0, end = 0;
    std::uint64_t holder = 0;  // Its thread state; 0: nobody holds it.
  };
  // Of all interpreters; none where this version's layout does not tell.
  std::vector<Gil> Gils(const ProcessMemory& memory) const;

 private:
  std::string TextAt(const ProcessMemory& memory, std::uint64_t object) const;
  template <typename F>
  void ForEachInterpreter(const ProcessMemory& memory, F&& f) const;
  PythonFrame NameOne(const ProcessMemory& memory, const RawPythonFrame& raw) const;
  pid_t ThreadOf(const ProcessMemory& memory, std::uint64_t id, const std::vector<pid_t>& threads) const;

  Found found_ = Found::kNone;
  std::uint32_t version_ = 0;
  std::uint64_t runtime_ = 0;  // Address of _PyRuntime.
  std::string path_;
  PythonLayout layout_;
};

}  // namespace lockstep::agent
