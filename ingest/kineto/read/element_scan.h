#pragma once
// Finds where elements of traceEvents begin and end, in text that may be damaged.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep::kineto {

// No valid trace has a larger or deeper element; without a limit an unclosed bracket would extend to the end of the
// file.
inline constexpr std::size_t kMaxElementBytes = std::size_t{16} << 20;
inline constexpr std::size_t kMaxDepth = 1024;
// Bytes that FindEventStart and FindArrayEnd may need before and after a position.
inline constexpr std::size_t kBytesBefore = 64, kBytesBehind = 256;

enum class ScanEnd : std::uint8_t { kComplete, kIncomplete, kBroken };

struct Scan {
  ScanEnd end = ScanEnd::kBroken;
  std::size_t next = 0;   // After the element, if it is complete.
  bool bad_text = false;  // Complete, but a string holds control characters or no UTF-8.
};

// Checks the element at `at`, byte for byte, and lists its tokens as simdjson's first
// stage does: offsets of brackets, commas, colons and of the first byte of every
// string and scalar. Scalars are any run of letters, digits and "+-._()#": what Python
// and C write for 0/0 is NaN, inf, -nan, -nan(ind), 1.#QNAN; Kineto's bandwidth of a
// copy that took no time is such a number.
Scan ScanElement(std::string_view text, std::size_t at, std::vector<std::uint32_t>& tokens);

inline constexpr std::array<bool, 256> kScalarBytes = [] {
  std::array<bool, 256> table{};
  for (std::size_t c = '0'; c <= '9'; ++c) table[c] = true;
  for (std::size_t c = 'a'; c <= 'z'; ++c) table[c] = true;
  for (std::size_t c = 'A'; c <= 'Z'; ++c) table[c] = true;
  for (const unsigned char c : {'+', '-', '.', '_', '(', ')', '#'}) table[c] = true;
  return table;
}();
// Part of a scalar.
inline bool IsScalarByte(char c) { return kScalarBytes[static_cast<unsigned char>(c)]; }
// Of what follows a key: its value is missing, and read as none. Kineto of 2024 (libkineto/src/output_json.cpp until
// its guard of empty descriptions) writes `"Process Group Description": ,` into the kernels of NCCL.
inline bool IsMissing(char c) { return c == ',' || c == '}'; }
inline bool IsBlank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// The first position from `from` on that looks like the start of an event, wherever it is: '{', a quote, a key that
// events begin with, and no colon before. In valid JSON both quotes cannot be part of a string. npos if there is none.
std::size_t FindEventStart(std::string_view text, std::size_t from);

// The first ']' from `from` on that looks like the end of traceEvents: it is followed by a key of Kineto's or the
// format's top level or, if the text is the file's end, only by '}' and blanks.
std::size_t FindArrayEnd(std::string_view text, std::size_t from, bool file_ends);

// The last position after a comma that looks like an event's start, not before `least`.
std::size_t FindLastEventStart(std::string_view text, std::size_t least);

}  // namespace lockstep::kineto
