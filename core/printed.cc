#include "core/printed.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "core/function_name.h"

namespace lockstep {
namespace {

struct Range {
  std::uint32_t first, last;
};

bool In(const Range* begin, const Range* end, std::uint32_t c) {
  const Range* at =
      std::upper_bound(begin, end, c, [](std::uint32_t value, const Range& r) { return value < r.first; });
  return at != begin && c <= (at - 1)->last;
}

// Unicode 15: characters that control the terminal or cannot be seen. Without the joiners U+200C and U+200D, which
// words of several languages and emoji need.
constexpr Range kUnseen[] = {
    {0x0000, 0x001f}, {0x007f, 0x009f},                        // C0, DEL, C1.
    {0x00ad, 0x00ad}, {0x034f, 0x034f},   {0x061c, 0x061c},    // Soft hyphen, grapheme joiner, Arabic letter mark.
    {0x115f, 0x1160}, {0x17b4, 0x17b5},   {0x180e, 0x180e},    // Fillers and vowels without a shape.
    {0x200b, 0x200b}, {0x200e, 0x200f},   {0x2028, 0x202e},    // Zero-width space, directions, line ends, embeddings.
    {0x2060, 0x206f}, {0x3164, 0x3164},   {0xd800, 0xdfff},    // Invisible operators, isolates; surrogates.
    {0xfeff, 0xfeff}, {0xffa0, 0xffa0},   {0xfff0, 0xfffb},    // Byte order mark, annotations.
    {0xfffe, 0xffff}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},  // Noncharacters, music's formats, tags.
};

// Characters of two columns: East Asian Wide and Fullwidth, emoji.
constexpr Range kWide[] = {
    {0x1100, 0x115f},   {0x231a, 0x231b},   {0x2329, 0x232a},   {0x23e9, 0x23ec},   {0x23f0, 0x23f0},
    {0x23f3, 0x23f3},   {0x25fd, 0x25fe},   {0x2614, 0x2615},   {0x2648, 0x2653},   {0x267f, 0x267f},
    {0x2693, 0x2693},   {0x26a1, 0x26a1},   {0x26aa, 0x26ab},   {0x26bd, 0x26be},   {0x26c4, 0x26c5},
    {0x26ce, 0x26ce},   {0x26d4, 0x26d4},   {0x26ea, 0x26ea},   {0x26f2, 0x26f3},   {0x26f5, 0x26f5},
    {0x26fa, 0x26fa},   {0x26fd, 0x26fd},   {0x2705, 0x2705},   {0x270a, 0x270b},   {0x2728, 0x2728},
    {0x274c, 0x274c},   {0x274e, 0x274e},   {0x2753, 0x2755},   {0x2757, 0x2757},   {0x2795, 0x2797},
    {0x27b0, 0x27b0},   {0x27bf, 0x27bf},   {0x2b1b, 0x2b1c},   {0x2b50, 0x2b50},   {0x2b55, 0x2b55},
    {0x2e80, 0x303e},   {0x3041, 0xa4cf},   {0xa960, 0xa97c},   {0xac00, 0xd7a3},   {0xf900, 0xfaff},
    {0xfe10, 0xfe19},   {0xfe30, 0xfe6f},   {0xff01, 0xff60},   {0xffe0, 0xffe6},   {0x16fe0, 0x18cff},
    {0x1aff0, 0x1b2ff}, {0x1f004, 0x1f004}, {0x1f0cf, 0x1f0cf}, {0x1f18e, 0x1f18e}, {0x1f191, 0x1f19a},
    {0x1f200, 0x1f320}, {0x1f32d, 0x1f335}, {0x1f337, 0x1f37c}, {0x1f37e, 0x1f393}, {0x1f3a0, 0x1f3ca},
    {0x1f3cf, 0x1f3d3}, {0x1f3e0, 0x1f3f0}, {0x1f3f4, 0x1f3f4}, {0x1f3f8, 0x1f43e}, {0x1f440, 0x1f440},
    {0x1f442, 0x1f4fc}, {0x1f4ff, 0x1f53d}, {0x1f54b, 0x1f567}, {0x1f57a, 0x1f57a}, {0x1f595, 0x1f596},
    {0x1f5a4, 0x1f5a4}, {0x1f5fb, 0x1f64f}, {0x1f680, 0x1f6c5}, {0x1f6cc, 0x1f6cc}, {0x1f6d0, 0x1f6d2},
    {0x1f6d5, 0x1f6df}, {0x1f6eb, 0x1f6ec}, {0x1f6f4, 0x1f6fc}, {0x1f7e0, 0x1f7eb}, {0x1f90c, 0x1f93a},
    {0x1f93c, 0x1f945}, {0x1f947, 0x1f9ff}, {0x1fa70, 0x1faff}, {0x20000, 0x3fffd},
};

// Characters of no column: the most frequent combining marks, joiners, variation selectors.
constexpr Range kMarks[] = {
    {0x0300, 0x036f}, {0x0483, 0x0489}, {0x0591, 0x05bd}, {0x0610, 0x061a}, {0x064b, 0x065f},
    {0x0900, 0x0902}, {0x093c, 0x093c}, {0x0941, 0x0948}, {0x094d, 0x094d}, {0x0e31, 0x0e31},
    {0x0e34, 0x0e3a}, {0x0e47, 0x0e4e}, {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x200c, 0x200d},
    {0x20d0, 0x20ff}, {0x302a, 0x302d}, {0x3099, 0x309a}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f},
};

constexpr std::uint32_t kNone = UINT32_MAX;

// The character at `at` and its length; kNone and 1 for a byte that begins no character (RFC 3629: no overlong forms,
// no surrogates, nothing beyond U+10FFFF).
std::uint32_t Decode(std::string_view text, std::size_t at, std::size_t& length) {
  length = 1;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return first;
  const std::size_t whole = first >= 0xf0 && first < 0xf5   ? 4
                            : first >= 0xe0 && first < 0xf0 ? 3
                            : first >= 0xc2 && first < 0xe0 ? 2
                                                            : 0;
  if (whole == 0 || text.size() - at < whole) return kNone;
  std::uint32_t c = first & (0x7fu >> whole);
  for (std::size_t i = 1; i < whole; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return kNone;
    c = c << 6 | (byte(at + i) & 0x3fu);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (c < kLeast[whole] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return kNone;
  length = whole;
  return c;
}

bool Unseen(std::uint32_t c) {
  return c == kNone || (c & 0xfffe) == 0xfffe || In(std::begin(kUnseen), std::end(kUnseen), c);
}

void AppendHex(std::string& out, std::uint32_t value, int digits) {
  static constexpr char kDigits[] = "0123456789abcdef";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kDigits[value >> shift & 15];
}

// Printable ASCII needs no table; most names consist of it entirely.
std::size_t PlainUntil(std::string_view text, std::size_t at) {
  while (at < text.size() && text[at] >= 0x20 && text[at] < 0x7f) ++at;
  return at;
}

// The length of the sequence ESC [ digits and semicolons m at `at`; 0 if there is another text.
std::size_t SgrLength(std::string_view text, std::size_t at) {
  constexpr std::size_t kLongest = 16;
  if (text.substr(at, 2) != "\x1b[") return 0;
  for (std::size_t i = at + 2; i < text.size() && i < at + kLongest; ++i) {
    if (text[i] == 'm') return i + 1 - at;
    if ((text[i] < '0' || text[i] > '9') && text[i] != ';') return 0;
  }
  return 0;
}

std::string Cleaned(std::string_view text, bool lines, bool colors) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t plain = PlainUntil(text, at);
    out.append(text, at, plain - at);
    if ((at = plain) == text.size()) break;
    std::size_t length = 1;
    const std::uint32_t c = Decode(text, at, length);
    if (!Unseen(c) || (lines && c == '\n')) {
      out.append(text, at, length);
    } else if (const std::size_t sgr = colors && c == 0x1b ? SgrLength(text, at) : 0; sgr > 0) {
      out.append(text, at, length = sgr);
    } else if (c == kNone || c < 0x80) {
      out += "\\x";
      AppendHex(out, static_cast<unsigned char>(text[at]), 2);
    } else {
      out += c > 0xffff ? "\\U" : "\\u";
      AppendHex(out, c, c > 0xffff ? 8 : 4);
    }
    at += length;
  }
  return out;
}

std::size_t ColumnsOf(std::uint32_t c) {
  if (c < 0x300) return 1;
  if (In(std::begin(kMarks), std::end(kMarks), c)) return 0;
  return In(std::begin(kWide), std::end(kWide), c) ? 2 : 1;
}

}  // namespace

std::string Printed(std::string_view text) { return Cleaned(text, false, false); }

std::string PrintedLines(std::string_view text, bool colors) { return Cleaned(text, true, colors); }

std::size_t PrintedColumns(std::string_view text) {
  std::size_t columns = 0;
  for (std::size_t at = 0, length = 1; at < text.size(); at += length) columns += ColumnsOf(Decode(text, at, length));
  return columns;
}

std::string PrintedShort(std::string_view text, std::size_t columns) {
  // A text never takes more columns than bytes.
  if (text.size() <= columns || PrintedColumns(text) <= columns) return std::string(text);
  columns = std::max<std::size_t>(columns, 6);
  const std::string function = ShortFunction(text, columns);
  if (function != text) return PrintedShort(function, columns);
  const std::size_t tail = columns / 3, head = columns - tail - 2;
  std::size_t end = 0, used = 0, length = 1;
  for (; end < text.size(); end += length) {
    const std::size_t wide = ColumnsOf(Decode(text, end, length));
    if (used + wide > head) break;
    used += wide;
  }
  std::size_t begin = text.size();
  for (used = 0; begin > end;) {
    std::size_t before = begin - 1;
    while (before > end && (static_cast<unsigned char>(text[before]) & 0xc0) == 0x80) --before;
    const std::size_t wide = ColumnsOf(Decode(text, before, length));
    if (used + wide > tail) break;
    used += wide;
    begin = before;
  }
  return std::string(text.substr(0, end)) + ".." + std::string(text.substr(begin));
}

std::string_view BeginOf(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  std::size_t end = bytes;
  // A character has four bytes at most; with more continuation bytes it is not a character.
  while (end > 0 && bytes - end < 3 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

std::string PrintedJson(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  const auto escape = [&](std::uint32_t unit) {
    out += "\\u";
    AppendHex(out, unit, 4);
  };
  for (std::size_t at = 0, length = 1; at < json.size(); at += length) {
    const std::size_t plain = PlainUntil(json, at);
    out.append(json, at, plain - at);
    if ((at = plain) == json.size()) break;
    const std::uint32_t c = Decode(json, at, length);
    if (c == '\n' || !Unseen(c)) {
      out.append(json, at, length);
    } else if (c == kNone) {
      out += "\xef\xbf\xbd";  // U+FFFD, because JSON cannot hold the byte.
    } else if (c == '\t' || c == '\r') {
      out += ' ';  // Between values; in strings both are escaped already.
    } else if (c > 0xffff) {
      escape(0xd800 + ((c - 0x10000) >> 10));
      escape(0xdc00 + ((c - 0x10000) & 0x3ff));
    } else {
      escape(c);
    }
  }
  return out;
}

std::string PrintedCsv(std::string_view text) {
  std::string clean = Printed(text);
  constexpr std::string_view kFormula = "=+-@";
  if (clean.size() > 1 && kFormula.find(clean[0]) != std::string_view::npos) clean.insert(0, 1, '\'');
  if (clean.find_first_of(",\"") == std::string::npos) return clean;
  std::string quoted = "\"";
  for (const char c : clean) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace lockstep
