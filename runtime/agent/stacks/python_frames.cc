#include "runtime/agent/stacks/python_frames.h"

#include <algorithm>
#include <array>

#include "runtime/agent/stacks/python_runtime.h"

namespace lockstep::agent {
namespace {

// Whatever is in that memory, the work is bounded.
constexpr std::size_t kMostPythonFrames = 256, kMostPythonThreads = 4096, kMostInterpreters = 64;
constexpr std::size_t kMostTextBytes = 4096;

}  // namespace

std::string VersionText(std::uint32_t version) {
  return version == 0 ? "" : std::to_string(version >> 8) + "." + std::to_string(version & 0xff);
}

PythonReader::PythonReader(const std::vector<Mapping>& mappings) {
  PythonRuntime runtime = FindPython(mappings);
  if (runtime.path.empty()) return;
  path_ = std::move(runtime.path);
  runtime_ = runtime.address;
  version_ = runtime.version;
  found_ = Found::kNotCovered;
  if (const PythonLayout* layout = LayoutOf(version_); layout != nullptr) {
    layout_ = *layout;
    found_ = Found::kReadable;
  }
}

bool PythonReader::ReadHead(const ProcessMemory& memory) {
  if (found_ != Found::kNotCovered) return found_ == Found::kReadable;
  std::array<std::uint8_t, kDebugOffsetsBytes> head{};
  if (!memory.Read(runtime_, head.data(), head.size()) || !LayoutFrom(head, layout_)) return false;
  version_ = layout_.version;
  found_ = Found::kReadable;
  return true;
}

pid_t PythonReader::ThreadOf(const ProcessMemory& memory, std::uint64_t id, const std::vector<pid_t>& threads) const {
  std::uint64_t number = id;
  if (layout_.frame_objects) {
    // Before 3.11 it is pthread_self(): glibc's struct pthread, which has the kernel's number behind its header
    // (nptl/descr.h; the same on x86-64 since 2.4).
    constexpr std::uint64_t kThreadNumber = 720;
    std::int32_t tid = 0;
    if (!memory.Get(id + kThreadNumber, tid)) return 0;
    number = static_cast<std::uint64_t>(tid);
  }
  const auto known = std::find_if(threads.begin(), threads.end(),
                                  [&](pid_t thread) { return static_cast<std::uint64_t>(thread) == number; });
  return known == threads.end() ? 0 : *known;
}

template <typename F>
void PythonReader::ForEachInterpreter(const ProcessMemory& memory, F&& f) const {
  std::uint64_t interpreter = 0;
  if (!memory.Get(runtime_ + layout_.interpreters_head, interpreter)) return;
  for (std::size_t i = 0; interpreter != 0 && i < kMostInterpreters; ++i) {
    f(interpreter);
    if (!memory.Get(interpreter + layout_.interpreter_next, interpreter)) return;
  }
}

std::map<pid_t, std::uint64_t> PythonReader::Threads(const ProcessMemory& memory,
                                                     const std::vector<pid_t>& threads) const {
  std::map<pid_t, std::uint64_t> states;
  ForEachInterpreter(memory, [&](std::uint64_t interpreter) {
    std::uint64_t state = 0;
    if (!memory.Get(interpreter + layout_.threads_head, state)) return;
    for (std::size_t t = 0; state != 0 && t < kMostPythonThreads; ++t) {
      std::uint64_t id = 0;
      if (!memory.Get(state + layout_.thread_id, id)) break;
      if (const pid_t thread = ThreadOf(memory, id, threads); thread != 0) states.emplace(thread, state);
      if (!memory.Get(state + layout_.thread_next, state)) break;
    }
  });
  return states;
}

std::vector<PythonReader::Gil> PythonReader::Gils(const ProcessMemory& memory) const {
  std::vector<Gil> gils;
  if (layout_.gil_bytes == 0) return gils;
  const auto add = [&](std::uint64_t begin) {
    Gil gil{.begin = begin, .end = begin + layout_.gil_bytes};
    std::int32_t locked = 0;
    if (!memory.Get(begin + layout_.gil_locked, locked) || !memory.Get(begin + layout_.gil_holder, gil.holder)) return;
    if (locked <= 0) gil.holder = 0;
    const bool known = std::any_of(gils.begin(), gils.end(), [&](const Gil& each) { return each.begin == begin; });
    if (!known) gils.push_back(gil);
  };
  if (!layout_.gil_of_interpreter) {
    add(runtime_ + layout_.gil);
    return gils;
  }
  ForEachInterpreter(memory, [&](std::uint64_t interpreter) {
    if (std::uint64_t begin = 0; memory.Get(interpreter + layout_.gil, begin) && begin != 0) add(begin);
  });
  return gils;
}

RawPythonStack PythonReader::Walk(const ProcessMemory& memory, std::uint64_t thread_state) const {
  RawPythonStack stack;
  stack.frames.resize(kMostPythonFrames);
  stack.frames.resize(WalkPython(memory, layout_, thread_state, stack.frames, stack.cut));
  return stack;
}

std::string PythonReader::TextAt(const ProcessMemory& memory, std::uint64_t object) const {
  std::array<char, kMostTextBytes> text;
  return {text.data(), PythonTextAt(memory, layout_, object, text)};
}

PythonFrame PythonReader::NameOne(const ProcessMemory& memory, const RawPythonFrame& raw) const {
  PythonFrame frame{.last_of_loop = raw.last_of_loop};
  PythonCode code;
  if (!ReadPythonCode(memory, layout_, raw.code, code)) return frame;
  frame.function = TextAt(memory, code.name);
  frame.function.erase(0, BeginOfFunctionName(frame.function));
  frame.path = TextAt(memory, code.path);
  frame.line = PythonFrameLine(memory, layout_, raw, code);
  return frame;
}

std::vector<PythonFrame> PythonReader::Name(const ProcessMemory& memory, const RawPythonStack& stack) const {
  std::vector<PythonFrame> frames;
  frames.reserve(stack.frames.size());
  for (const RawPythonFrame& raw : stack.frames) frames.push_back(NameOne(memory, raw));
  return frames;
}

}  // namespace lockstep::agent
