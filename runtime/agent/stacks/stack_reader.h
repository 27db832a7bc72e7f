#pragma once
// Stacks of the threads of a program below this process, taken from outside while it runs: nothing is loaded into it
// and no code runs in it (docs/decisions/stacks-from-outside.md).

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::agent {

struct StackFrame {
  std::string function;   // "collate", "lockstep_demo::Work()"; "[libfoo.so+0x12af]" where there is no name.
  std::string file;       // Short: "train.py", "libtorch_cpu.so"; "" unknown.
  std::int32_t line = 0;  // 0 unknown.
  bool python = false;
  bool library = false;  // Of the system, of Python or of an installed package.
};

struct ThreadStack {
  std::int64_t thread = 0;         // As the kernel calls it in this process's namespace.
  std::string name;                // "python3", "pt_main_thread".
  bool main = false;               // The process's first thread.
  std::vector<StackFrame> frames;  // Outermost first. Python's frames stand in place of the interpreter's own.
  std::string why_short;           // "" it is whole; else what is missing, in words.
  std::string waits_for;           // "Python's GIL", "a lock"; "" none that is known.
  std::int64_t held_by = 0;        // The thread of this process that has it; 0 not known.
};

struct StackSample {
  std::int64_t id = 0;  // What Take returned.
  std::int64_t process = 0;
  std::int64_t at_ns = 0;       // RawNs().
  std::int64_t stopped_ns = 0;  // The longest stop of a thread; 0: none was stopped.
  std::vector<ThreadStack> threads;
};

// Taking a sample (stop, registers, a copy of the stack, Python's frames) is done by this process, in bounded time.
// Names are found by `lockstep-stacks`, a process of its own at idle priority that is started at the first sample and
// lives as long as this object. Thread: one.
class StackReader {
 public:
  enum class Which { kMainThread, kAllThreads };
  struct Setup {
    std::string program;                    // lockstep-stacks; "" there is none: functions have no names but Python's.
    std::function<void()> restore_signals;  // In the new process, before it executes.
  };
  explicit StackReader(Setup setup);
  StackReader(const StackReader&) = delete;
  StackReader& operator=(const StackReader&) = delete;
  ~StackReader();

  // The number of the sample; 0: none could be taken, and why() says why, with the remedy.
  std::int64_t Take(pid_t pid, Which which);
  // Those whose names are known by now. Never blocks.
  std::vector<StackSample> Ready();
  const std::string& why() const;
  // Taken, and not ready yet.
  std::size_t pending() const;
  // Calls that a stop had ended and that were begun again.
  std::uint64_t mended() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::agent
