#pragma once
// One stack out of a thread's native frames and its frames of Python code.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/agent/stacks/python_frames.h"
#include "runtime/agent/stacks/stack_reader.h"

namespace lockstep::agent {

// As lockstep-stacks tells it (stack_request.h).
struct NativeFrame {
  std::string module, function, file;  // Paths of the mapped file and of the source.
  std::int32_t line = 0;
  enum class Mark : std::uint8_t { kNone, kPythonLoop, kLeftOut } mark = Mark::kNone;
};
struct NativeStack {
  std::int64_t thread = 0;
  std::string why_short;
  std::vector<NativeFrame> frames;  // Innermost first.
};
std::vector<NativeStack> NativeStacksOf(std::string_view answer);

// Both innermost first. A call of the interpreter's loop stands for the Python frames up to one that is last_of_loop;
// other native frames of the interpreter's file (`interpreter`, a path) are its own and left out, and so are
// Lockstep's.
std::vector<StackFrame> MergeStacks(const std::vector<NativeFrame>& native, const std::vector<PythonFrame>& python,
                                    std::string_view interpreter);

// Whether a file belongs to the system, to Python or to an installed package: what somebody runs lies elsewhere.
bool IsLibrary(std::string_view path);

}  // namespace lockstep::agent
