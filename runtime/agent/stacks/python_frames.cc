#include "runtime/agent/stacks/python_frames.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/agent/stacks/python_runtime.h"

namespace lockstep::agent {
namespace {

// Whatever is in that memory, the work is bounded.
constexpr std::size_t kMostPythonFrames = 256, kMostPythonThreads = 4096, kMostInterpreters = 64,
                      kMostCharacters = 4096, kMostTable = 1U << 20;

struct TextHead {
  std::uint32_t width = 0;  // Bytes per character.
  bool ascii = false;
};

// Behind the two bits that say whether the string is interned, or behind the byte or the 16 bits that later versions
// and those without a GIL have for them: kind (3 bits), compact, ascii. Only one of them makes sense.
bool TextHeadOf(std::uint32_t state, TextHead& head) {
  for (const unsigned shift : {2U, 8U, 16U}) {
    const std::uint32_t bits = state >> shift;
    head = {.width = bits & 7, .ascii = (bits >> 4 & 1) != 0};
    const bool compact = (bits >> 3 & 1) != 0;
    if (compact && (head.width == 1 || (!head.ascii && (head.width == 2 || head.width == 4)))) return true;
  }
  return false;
}

void AppendUtf8(std::string& text, std::uint32_t character) {
  const auto add = [&](std::uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  const auto tail = [&](unsigned shift) { add(0x80 | (character >> shift & 0x3f)); };
  if (character < 0x80) return add(character);
  if (character < 0x800) {
    add(0xc0 | character >> 6);
  } else if (character < 0x10000) {
    add(0xe0 | character >> 12);
    tail(6);
  } else {
    add(0xf0 | (character >> 18 & 7));
    tail(12);
    tail(6);
  }
  tail(0);
}

// Entries of co_linetable since 3.11: a byte whose highest bit is set, with a code and the number of instructions, then
// bytes without that bit.
class Locations {
 public:
  explicit Locations(const std::vector<std::uint8_t>& table) : table_(table) {}

  std::int32_t Find(std::int32_t line, std::int64_t at) {
    constexpr std::int64_t kInstructionBytes = 2;
    std::int64_t end = 0;
    while (place_ < table_.size()) {
      const std::uint8_t first = table_[place_++];
      const unsigned code = first >> 3 & 15;
      end += kInstructionBytes * ((first & 7) + 1);
      constexpr unsigned kNone = 15, kLong = 14, kNoColumns = 13, kOneLine = 10;
      if (code == kLong || code == kNoColumns) line += Signed();
      if (code >= kOneLine && code < kNoColumns) line += static_cast<std::int32_t>(code - kOneLine);
      if (at < end) return code == kNone ? 0 : line;
      while (place_ < table_.size() && table_[place_] < 0x80) ++place_;
    }
    return 0;
  }

 private:
  std::int32_t Signed() {
    std::uint32_t value = 0;
    for (unsigned shift = 0; place_ < table_.size() && shift < 30; shift += 6) {
      const std::uint8_t byte = table_[place_++];
      value |= (byte & 63U) << shift;
      if ((byte & 64) == 0) break;
    }
    const auto size = static_cast<std::int32_t>(value >> 1);
    return (value & 1) != 0 ? -size : size;
  }

  const std::vector<std::uint8_t>& table_;
  std::size_t place_ = 0;
};

std::int32_t LineOfPairs(LineTable kind, const std::vector<std::uint8_t>& table, std::int32_t line, std::int64_t at) {
  std::int64_t address = 0;
  for (std::size_t i = 0; i + 1 < table.size(); i += 2) {
    const auto lines = static_cast<std::int8_t>(table[i + 1]);
    if (kind == LineTable::kIncrements) {
      address += table[i];
      if (address > at) break;
      line += lines;
      continue;
    }
    constexpr std::int8_t kNoLine = -128;
    address += table[i];
    if (lines != kNoLine) line += lines;
    if (at < address) return lines == kNoLine ? 0 : line;
  }
  return kind == LineTable::kIncrements ? line : 0;
}

}  // namespace

std::int32_t LineOf(LineTable kind, const std::vector<std::uint8_t>& table, std::int32_t first_line, std::int64_t at) {
  // A frame that has not begun yet stands before its first instruction.
  constexpr std::int64_t kBefore = -8;
  if (at < kBefore) return 0;
  if (at < 0) return first_line;
  if (kind == LineTable::kLocations) return Locations(table).Find(first_line, at);
  return LineOfPairs(kind, table, first_line, at);
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

std::map<pid_t, std::uint64_t> PythonReader::Threads(const ProcessMemory& memory,
                                                     const std::vector<pid_t>& threads) const {
  std::map<pid_t, std::uint64_t> states;
  std::uint64_t interpreter = 0;
  if (!memory.Get(runtime_ + layout_.interpreters_head, interpreter)) return states;
  for (std::size_t i = 0; interpreter != 0 && i < kMostInterpreters; ++i) {
    std::uint64_t state = 0;
    if (!memory.Get(interpreter + layout_.threads_head, state)) break;
    for (std::size_t t = 0; state != 0 && t < kMostPythonThreads; ++t) {
      std::uint64_t id = 0;
      if (!memory.Get(state + layout_.thread_id, id)) break;
      if (const pid_t thread = ThreadOf(memory, id, threads); thread != 0) states.emplace(thread, state);
      if (!memory.Get(state + layout_.thread_next, state)) break;
    }
    if (!memory.Get(interpreter + layout_.interpreter_next, interpreter)) break;
  }
  return states;
}

RawPythonStack PythonReader::Walk(const ProcessMemory& memory, std::uint64_t thread_state) const {
  RawPythonStack stack;
  std::uint64_t frame = 0;
  if (!memory.Get(thread_state + layout_.thread_frame, frame)) return stack;
  if (layout_.through_cframe && (frame == 0 || !memory.Get(frame + layout_.cframe_frame, frame))) return stack;
  std::array<std::uint8_t, 256> bytes{};
  const std::size_t wanted = std::min<std::size_t>(bytes.size(), layout_.frame_bytes());
  const auto word = [&](std::uint64_t offset) {
    std::uint64_t value = 0;
    if (offset + sizeof value <= wanted) std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  };
  while (frame != 0) {
    if (stack.frames.size() == kMostPythonFrames || frame % 8 != 0 || !memory.Read(frame, bytes.data(), wanted)) {
      stack.cut = true;
      break;
    }
    const bool mark = !layout_.frame_objects && !layout_.has_entry && bytes[layout_.frame_owner] >= kOwnedByLoop;
    if (mark) {
      if (!stack.frames.empty()) stack.frames.back().last_of_loop = true;
    } else {
      RawPythonFrame raw;
      // The lowest bits of a pointer on the interpreter's stack are marks of its own (3.14).
      raw.code = word(layout_.frame_code) & ~std::uint64_t{7};
      std::int32_t number = 0;
      std::memcpy(&number, bytes.data() + layout_.frame_position, sizeof number);
      raw.position = layout_.frame_objects ? number : static_cast<std::int64_t>(word(layout_.frame_position));
      raw.last_of_loop = layout_.frame_objects || (layout_.has_entry && bytes[layout_.frame_entry] != 0);
      stack.frames.push_back(raw);
    }
    const std::uint64_t previous = word(layout_.frame_previous);
    if (previous == frame) break;
    frame = previous;
  }
  if (!stack.frames.empty() && !stack.cut) stack.frames.back().last_of_loop = true;
  return stack;
}

std::string PythonReader::TextAt(const ProcessMemory& memory, std::uint64_t object) const {
  std::uint32_t state = 0;
  std::int64_t length = 0;
  TextHead head;
  if (object == 0 || !memory.Get(object + layout_.text_state, state) ||
      !memory.Get(object + layout_.text_length, length) || !TextHeadOf(state, head) || length < 0)
    return "";
  const std::size_t count = std::min(static_cast<std::size_t>(length), kMostCharacters);
  const std::uint64_t begin = object + (head.ascii ? layout_.text_bytes : layout_.text_wide);
  std::vector<std::uint8_t> bytes(count * head.width);
  if (!memory.Read(begin, bytes.data(), bytes.size())) return "";
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t character = 0;
    std::memcpy(&character, bytes.data() + i * head.width, head.width);
    AppendUtf8(text, character);
  }
  return text;
}

std::vector<std::uint8_t> PythonReader::BytesAt(const ProcessMemory& memory, std::uint64_t object) const {
  std::int64_t length = 0;
  if (object == 0 || !memory.Get(object + layout_.bytes_length, length) || length < 0 ||
      static_cast<std::size_t>(length) > kMostTable)
    return {};
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(length));
  if (!memory.Read(object + layout_.bytes_begin, bytes.data(), bytes.size())) return {};
  return bytes;
}

PythonFrame PythonReader::NameOne(const ProcessMemory& memory, const RawPythonFrame& raw) const {
  PythonFrame frame{.last_of_loop = raw.last_of_loop};
  std::uint64_t name = 0, path = 0, table = 0;
  std::int32_t first_line = 0;
  if (!memory.Get(raw.code + layout_.code_name, name) || !memory.Get(raw.code + layout_.code_filename, path) ||
      !memory.Get(raw.code + layout_.code_lines, table) || !memory.Get(raw.code + layout_.code_first_line, first_line))
    return frame;
  frame.function = TextAt(memory, name);
  frame.path = TextAt(memory, path);
  // "main.<locals>.collate": what it was defined in tells nothing that the line does not.
  constexpr std::string_view kLocals = "<locals>.";
  if (const std::size_t at = frame.function.rfind(kLocals); at != std::string::npos)
    frame.function.erase(0, at + kLocals.size());
  std::int64_t at = raw.position;
  if (!layout_.frame_objects) at -= static_cast<std::int64_t>(raw.code + layout_.code_begin);
  if (layout_.lines == LineTable::kRanges) at *= 2;
  frame.line = LineOf(layout_.lines, BytesAt(memory, table), first_line, at);
  return frame;
}

std::vector<PythonFrame> PythonReader::Name(const ProcessMemory& memory, const RawPythonStack& stack) const {
  std::vector<PythonFrame> frames;
  frames.reserve(stack.frames.size());
  for (const RawPythonFrame& raw : stack.frames) frames.push_back(NameOne(memory, raw));
  return frames;
}

}  // namespace lockstep::agent
