#include "runtime/agent/stacks/stack_merge.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "core/own_file.h"

namespace lockstep::agent {
namespace {

// Below the first function of a program or a thread there is nothing of interest.
bool IsBegin(std::string_view function) {
  constexpr std::string_view kBegins[] = {
      "_start",  "__libc_start_main", "__libc_start_call_main", "__libc_start_main_impl", "clone3", "__clone3", "clone",
      "__clone", "start_thread"};
  return std::find(std::begin(kBegins), std::end(kBegins), function) != std::end(kBegins);
}

StackFrame FrameOf(const PythonFrame& frame) {
  return {.function = frame.function.empty() ? "[unknown]" : frame.function,
          .file = std::string(BaseName(frame.path)),
          .line = frame.line,
          .python = true,
          .library = IsLibrary(frame.path)};
}

StackFrame FrameOf(const NativeFrame& frame) {
  const std::string_view file = BaseName(frame.file.empty() ? frame.module : frame.file);
  return {.function = frame.function,
          .file = std::string(file),
          .line = frame.line,
          .library = IsLibrary(frame.module) || IsLibrary(frame.file)};
}

// What Lockstep has put between the program and the libraries that it calls.
bool IsLocksteps(const NativeFrame& frame) { return BaseName(frame.module).starts_with("liblockstep"); }
bool IsLocksteps(const PythonFrame& frame) { return frame.path.find("/_lockstep/") != std::string::npos; }

// An interpreter that is a part of another program is not told from that program by its file.
bool IsInterpreters(const NativeFrame& frame, std::string_view interpreter) {
  if (interpreter.empty() || frame.module != interpreter) return false;
  const std::string_view file = BaseName(interpreter);
  return file.starts_with("python") || file.starts_with("libpython") || frame.function.starts_with("Py") ||
         frame.function.starts_with("_Py");
}

}  // namespace

bool IsLibrary(std::string_view path) {
  if (path.starts_with("/usr/local/")) return path.find("/lib/python3") != std::string_view::npos;
  return path.starts_with("/usr/") || path.starts_with("/lib/") || path.starts_with("/lib64/") ||
         path.starts_with('<') || path.starts_with('[') || path.find("/site-packages/") != std::string_view::npos ||
         path.find("/dist-packages/") != std::string_view::npos || path.find("/lib/python3") != std::string_view::npos;
}

std::vector<NativeStack> NativeStacksOf(std::string_view answer) {
  std::vector<NativeStack> stacks;
  while (!answer.empty()) {
    const std::size_t end = std::min(answer.find('\n'), answer.size());
    std::string_view line = answer.substr(0, end);
    answer.remove_prefix(std::min(end + 1, answer.size()));
    std::array<std::string_view, 6> fields;
    for (std::string_view& field : fields) {
      const std::size_t length = std::min(line.find('\t'), line.size());
      field = line.substr(0, length);
      line.remove_prefix(std::min(length + 1, line.size()));
    }
    const auto number = [](std::string_view text) {
      std::int32_t value = 0;
      std::from_chars(text.data(), text.data() + text.size(), value);
      return value;
    };
    if (fields[0] == "T") stacks.push_back({.thread = number(fields[1]), .why_short = std::string(fields[2])});
    if (fields[0] != "F" || stacks.empty()) continue;
    using Mark = NativeFrame::Mark;
    stacks.back().frames.push_back({.module = std::string(fields[1]),
                                    .function = std::string(fields[2]),
                                    .file = std::string(fields[3]),
                                    .line = number(fields[4]),
                                    .mark = fields[5] == "e"   ? Mark::kPythonLoop
                                            : fields[5] == "s" ? Mark::kLeftOut
                                                               : Mark::kNone});
  }
  return stacks;
}

std::vector<StackFrame> MergeStacks(const std::vector<NativeFrame>& native, const std::vector<PythonFrame>& python,
                                    std::string_view interpreter) {
  std::vector<StackFrame> frames;
  std::size_t next = 0;  // Of `python`.
  const auto add_python = [&] {
    while (next < python.size()) {
      if (!IsLocksteps(python[next])) frames.push_back(FrameOf(python[next]));
      if (python[next++].last_of_loop) break;
    }
  };
  for (const NativeFrame& frame : native) {
    if (frame.mark == NativeFrame::Mark::kLeftOut || IsLocksteps(frame)) continue;
    if (frame.mark == NativeFrame::Mark::kPythonLoop)
      add_python();
    else if (!IsInterpreters(frame, python.empty() ? "" : interpreter))
      frames.push_back(FrameOf(frame));
  }
  while (!frames.empty() && !frames.back().python && IsBegin(frames.back().function)) frames.pop_back();
  // Of those below, the native frames are not known.
  while (next < python.size()) add_python();
  std::reverse(frames.begin(), frames.end());
  return frames;
}

}  // namespace lockstep::agent
