#pragma once
// The frames of Python code of another process, read from its memory: no code runs in it, and it need not stop.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/agent/stacks/process_memory.h"
#include "runtime/agent/stacks/python_layout.h"

namespace lockstep::agent {

struct PythonFrame {
  std::string function, path;  // "Loader.collate", "/job/train.py".
  std::int32_t line = 0;       // 0 unknown.
  bool last_of_loop = false;   // The outermost of a call of the interpreter's loop.
};

// A frame before its names are read: while its thread is stopped there is time for no more.
struct RawPythonFrame {
  std::uint64_t code = 0;
  std::int64_t position = 0;  // Address of the instruction, or its number (frame objects).
  bool last_of_loop = false;
};

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

 private:
  std::string TextAt(const ProcessMemory& memory, std::uint64_t object) const;
  std::vector<std::uint8_t> BytesAt(const ProcessMemory& memory, std::uint64_t object) const;
  PythonFrame NameOne(const ProcessMemory& memory, const RawPythonFrame& raw) const;
  pid_t ThreadOf(const ProcessMemory& memory, std::uint64_t id, const std::vector<pid_t>& threads) const;

  Found found_ = Found::kNone;
  std::uint32_t version_ = 0;
  std::uint64_t runtime_ = 0;  // Address of _PyRuntime.
  std::string path_;
  PythonLayout layout_;
};

// The line of an instruction; `at`: its offset in bytes from the begin of the code. 0: the table does not say.
std::int32_t LineOf(LineTable kind, const std::vector<std::uint8_t>& table, std::int32_t first_line, std::int64_t at);

}  // namespace lockstep::agent
