#pragma once
// What Python code a thread is in, read from a process's memory by the layout of its version: by an agent from outside,
// and by the probe inside. Nothing here allocates memory or runs code of Python's, and whatever is in that memory, the
// work is bounded.
//
// Memory: a type with `bool Read(std::uint64_t address, void* to, std::size_t bytes) const`: all of it, or false.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "core/python_layout.h"

namespace lockstep {

// A frame before its names are read.
struct RawPythonFrame {
  std::uint64_t code = 0;
  std::int64_t position = 0;  // Address of the instruction, or its number (frame objects).
  bool last_of_loop = false;  // The outermost of a call of the interpreter's loop.
};

// The frames of a PyThreadState, innermost first; how many there are, and whether there may be more.
template <typename Memory>
std::size_t WalkPython(const Memory& memory, const PythonLayout& layout, std::uint64_t thread_state,
                       std::span<RawPythonFrame> frames, bool& cut) {
  std::size_t count = 0;
  std::uint64_t frame = 0;
  cut = false;
  if (!memory.Read(thread_state + layout.thread_frame, &frame, sizeof frame)) return 0;
  if (layout.through_cframe && (frame == 0 || !memory.Read(frame + layout.cframe_frame, &frame, sizeof frame)))
    return 0;
  std::array<std::uint8_t, 256> bytes{};
  const std::size_t wanted = std::min<std::size_t>(bytes.size(), layout.frame_bytes());
  const auto word = [&](std::uint64_t offset) {
    std::uint64_t value = 0;
    if (offset + sizeof value <= wanted) std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  };
  // Marks of calls of the loop are no frames, and no more than these.
  for (std::size_t steps = 0; frame != 0; ++steps) {
    if (count == frames.size() || steps > 2 * frames.size() || frame % 8 != 0 ||
        !memory.Read(frame, bytes.data(), wanted)) {
      cut = true;
      break;
    }
    const bool mark = !layout.frame_objects && !layout.has_entry && bytes[layout.frame_owner] >= kOwnedByLoop;
    if (mark) {
      if (count != 0) frames[count - 1].last_of_loop = true;
    } else {
      RawPythonFrame& raw = frames[count++];
      // The lowest bits of a pointer on the interpreter's stack are marks of its own (3.14).
      raw.code = word(layout.frame_code) & ~std::uint64_t{7};
      std::int32_t number = 0;
      std::memcpy(&number, bytes.data() + layout.frame_position, sizeof number);
      raw.position = layout.frame_objects ? number : static_cast<std::int64_t>(word(layout.frame_position));
      raw.last_of_loop = layout.frame_objects || (layout.has_entry && bytes[layout.frame_entry] != 0);
    }
    const std::uint64_t previous = word(layout.frame_previous);
    if (previous == frame) break;
    frame = previous;
  }
  if (count != 0 && !cut) frames[count - 1].last_of_loop = true;
  return count;
}

// Bytes of memory in their order, a piece at a time.
template <typename Memory>
class MemoryBytes {
 public:
  MemoryBytes(const Memory& memory, std::uint64_t address, std::uint64_t bytes)
      : memory_(memory), address_(address), left_(bytes) {}
  // The next one without taking it; false: there is none.
  bool Peek(std::uint8_t& byte) {
    if (at_ == filled_) {
      filled_ = static_cast<std::size_t>(std::min<std::uint64_t>(left_, piece_.size()));
      at_ = 0;
      if (filled_ == 0 || !memory_.Read(address_, piece_.data(), filled_)) {
        left_ = filled_ = 0;
        return false;
      }
      address_ += filled_;
      left_ -= filled_;
    }
    byte = piece_[at_];
    return true;
  }
  bool Next(std::uint8_t& byte) {
    if (!Peek(byte)) return false;
    ++at_;
    return true;
  }

 private:
  const Memory& memory_;
  std::uint64_t address_, left_;
  std::array<std::uint8_t, 256> piece_;
  std::size_t at_ = 0, filled_ = 0;
};

namespace python_code {

// Entries of co_linetable since 3.11: a byte whose highest bit is set, with a code and the number of instructions, then
// bytes without that bit.
template <typename Bytes>
std::int32_t SignedOf(Bytes& table) {
  std::uint32_t value = 0;
  std::uint8_t byte = 0;
  for (unsigned shift = 0; shift < 30 && table.Next(byte); shift += 6) {
    value |= (byte & 63U) << shift;
    if ((byte & 64) == 0) break;
  }
  const auto size = static_cast<std::int32_t>(value >> 1);
  return (value & 1) != 0 ? -size : size;
}

template <typename Bytes>
std::int32_t LineByLocations(Bytes& table, std::int32_t line, std::int64_t at) {
  constexpr std::int64_t kInstructionBytes = 2;
  constexpr unsigned kNone = 15, kLong = 14, kNoColumns = 13, kOneLine = 10;
  std::int64_t end = 0;
  std::uint8_t byte = 0;
  while (table.Next(byte)) {
    const unsigned code = byte >> 3 & 15;
    end += kInstructionBytes * ((byte & 7) + 1);
    if (code == kLong || code == kNoColumns) line += SignedOf(table);
    if (code >= kOneLine && code < kNoColumns) line += static_cast<std::int32_t>(code - kOneLine);
    if (at < end) return code == kNone ? 0 : line;
    while (table.Peek(byte) && byte < 0x80) table.Next(byte);
  }
  return 0;
}

template <typename Bytes>
std::int32_t LineByPairs(LineTable kind, Bytes& table, std::int32_t line, std::int64_t at) {
  std::int64_t address = 0;
  std::uint8_t step = 0, change = 0;
  while (table.Next(step) && table.Next(change)) {
    const auto lines = static_cast<std::int8_t>(change);
    address += step;
    if (kind == LineTable::kIncrements) {
      if (address > at) break;
      line += lines;
      continue;
    }
    constexpr std::int8_t kNoLine = -128;
    if (lines != kNoLine) line += lines;
    if (at < address) return lines == kNoLine ? 0 : line;
  }
  return kind == LineTable::kIncrements ? line : 0;
}

struct TextHead {
  std::uint32_t width = 0;  // Bytes per character.
  bool ascii = false;
};

// Behind the two bits that say whether the string is interned, or behind the byte or the 16 bits that later versions
// and those without a GIL have for them: kind (3 bits), compact, ascii. Only one of them makes sense.
inline bool TextHeadOf(std::uint32_t state, TextHead& head) {
  for (const unsigned shift : {2U, 8U, 16U}) {
    const std::uint32_t bits = state >> shift;
    head = {.width = bits & 7, .ascii = (bits >> 4 & 1) != 0};
    const bool compact = (bits >> 3 & 1) != 0;
    if (compact && (head.width == 1 || (!head.ascii && (head.width == 2 || head.width == 4)))) return true;
  }
  return false;
}

// Bytes written, at most 4; 0 if they do not fit.
inline std::size_t Utf8(std::uint32_t character, std::span<char> to) {
  const std::size_t bytes = character < 0x80 ? 1 : character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
  if (to.size() < bytes) return 0;
  constexpr std::array<std::uint8_t, 5> kFirst = {0, 0, 0xc0, 0xe0, 0xf0};
  for (std::size_t i = bytes; i > 1; --i, character >>= 6) to[i - 1] = static_cast<char>(0x80 | (character & 0x3f));
  to[0] = static_cast<char>(kFirst[bytes] | (bytes == 1 ? character : character & (0x7fU >> bytes)));
  return bytes;
}

}  // namespace python_code

// The line of an instruction; `at`: its offset in bytes from the begin of the code. 0: the table does not say.
// Bytes: as MemoryBytes.
template <typename Bytes>
std::int32_t PythonLineOf(LineTable kind, Bytes& table, std::int32_t first_line, std::int64_t at) {
  // A frame that has not begun yet stands before its first instruction.
  constexpr std::int64_t kBefore = -8;
  if (at < kBefore) return 0;
  if (at < 0) return first_line;
  if (kind == LineTable::kLocations) return python_code::LineByLocations(table, first_line, at);
  return python_code::LineByPairs(kind, table, first_line, at);
}

// A str as UTF-8, its begin where `to` is too short; how many bytes.
template <typename Memory>
std::size_t PythonTextAt(const Memory& memory, const PythonLayout& layout, std::uint64_t object, std::span<char> to) {
  std::uint32_t state = 0;
  std::int64_t length = 0;
  python_code::TextHead head;
  if (object == 0 || !memory.Read(object + layout.text_state, &state, sizeof state) ||
      !memory.Read(object + layout.text_length, &length, sizeof length) || !python_code::TextHeadOf(state, head) ||
      length < 0)
    return 0;
  const std::uint64_t characters = std::min<std::uint64_t>(static_cast<std::uint64_t>(length), to.size());
  MemoryBytes<Memory> bytes(memory, object + (head.ascii ? layout.text_bytes : layout.text_wide),
                            characters * head.width);
  std::size_t used = 0;
  for (std::uint64_t i = 0; i < characters; ++i) {
    std::uint32_t character = 0;
    for (std::uint32_t part = 0; part < head.width; ++part) {
      std::uint8_t byte = 0;
      if (!bytes.Next(byte)) return 0;
      character |= std::uint32_t{byte} << (8 * part);
    }
    const std::size_t more = python_code::Utf8(character, to.subspan(used));
    if (more == 0) break;
    used += more;
  }
  return used;
}

// Of a code object: what tells it from another one that was at the same address before.
struct PythonCode {
  std::uint64_t name = 0, path = 0, lines = 0;  // Objects.
  std::int32_t first_line = 0;
};
template <typename Memory>
bool ReadPythonCode(const Memory& memory, const PythonLayout& layout, std::uint64_t code, PythonCode& into) {
  return memory.Read(code + layout.code_name, &into.name, sizeof into.name) &&
         memory.Read(code + layout.code_filename, &into.path, sizeof into.path) &&
         memory.Read(code + layout.code_lines, &into.lines, sizeof into.lines) &&
         memory.Read(code + layout.code_first_line, &into.first_line, sizeof into.first_line);
}

// The line that a frame is in; 0 unknown.
template <typename Memory>
std::int32_t PythonFrameLine(const Memory& memory, const PythonLayout& layout, const RawPythonFrame& frame,
                             const PythonCode& code) {
  constexpr std::int64_t kMostTable = 1 << 20;
  std::int64_t bytes = 0;
  if (code.lines == 0 || !memory.Read(code.lines + layout.bytes_length, &bytes, sizeof bytes) || bytes < 0 ||
      bytes > kMostTable)
    return 0;
  std::int64_t at = frame.position;
  if (!layout.frame_objects) at -= static_cast<std::int64_t>(frame.code + layout.code_begin);
  if (layout.lines == LineTable::kRanges) at *= 2;
  MemoryBytes<Memory> table(memory, code.lines + layout.bytes_begin, static_cast<std::uint64_t>(bytes));
  return PythonLineOf(layout.lines, table, code.first_line, at);
}

// "main.<locals>.collate": what a function was defined in tells nothing that its line does not.
constexpr std::size_t BeginOfFunctionName(std::string_view name) {
  constexpr std::string_view kLocals = "<locals>.";
  const std::size_t at = name.rfind(kLocals);
  return at == std::string_view::npos ? 0 : at + kLocals.size();
}

}  // namespace lockstep
