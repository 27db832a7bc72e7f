#include "analysis/report/html/packed.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace lockstep::report {
namespace {

// Three days in ns; the page's doubles are exact to 2^53.
constexpr std::size_t kMostBytes = 6;

constexpr std::uint64_t AllOnes(std::size_t bytes) { return (std::uint64_t{1} << 8 * bytes) - 1; }

std::string Base64(const std::vector<std::uint8_t>& bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t left = std::min<std::size_t>(3, bytes.size() - i);
    const std::uint32_t group = static_cast<std::uint32_t>(bytes[i]) << 16 |
                                (left > 1 ? static_cast<std::uint32_t>(bytes[i + 1]) << 8 : 0) |
                                (left > 2 ? static_cast<std::uint32_t>(bytes[i + 2]) : 0);
    for (std::size_t digit = 0; digit < 4; ++digit)
      text += digit <= left ? kDigits[group >> (18 - 6 * digit) & 63] : '=';
  }
  return text;
}

// Level and strategy are fixed: the same run gives the same page.
std::vector<std::uint8_t> Deflated(const std::vector<std::uint8_t>& bytes) {
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  std::vector<std::uint8_t> packed(size);
  // The buffer has the size of the worst case, so this can fail for lack of memory only.
  if (compress2(packed.data(), &size, bytes.data(), static_cast<uLong>(bytes.size()), 9) != Z_OK) std::abort();
  packed.resize(size);
  return packed;
}

// The next character of UTF-8 text and its length; -1 and 1 if there is no valid character.
std::pair<std::int32_t, std::size_t> NextCharacter(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return {-1, 1};
  std::int32_t value = first & (0x7f >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {-1, 1};
    value = value << 6 | (byte(i) & 0x3f);
  }
  constexpr std::int32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < kLeast[length] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return {-1, 1};
  return {value, length};
}

// Whether the character changes what other characters look like, or cannot be seen: with it a name reads like another
// one.
bool Deceives(std::int32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xfff0 && c <= 0xfffb) ||
         (c >= 0xe0000 && c <= 0xe0fff);
}

}  // namespace

PageJson Packed(const std::vector<std::int64_t>& values) {
  std::int64_t low = INT64_MAX, high = INT64_MIN;
  for (const std::int64_t value : values) {
    if (value == kUnknownCell) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (low > high) low = high = 0;
  const std::uint64_t span = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  std::uint64_t unit = 1;
  std::size_t width = 1;  // Bytes of a value.
  while (width < kMostBytes && span >= AllOnes(width)) ++width;
  while (span / unit >= AllOnes(width)) unit *= 2;
  std::vector<std::uint8_t> planes(values.size() * width);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t raw = values[i] == kUnknownCell
                                  ? AllOnes(width)
                                  : (static_cast<std::uint64_t>(values[i]) - static_cast<std::uint64_t>(low)) / unit;
    for (std::size_t plane = 0; plane < width; ++plane)
      planes[plane * values.size() + i] = static_cast<std::uint8_t>(raw >> 8 * plane);
  }
  return {{"packed", Base64(Deflated(planes))}, {"n", values.size()}, {"width", width}, {"base", low}, {"unit", unit}};
}

void RoundTo(int bits, std::vector<std::int64_t>& values) {
  for (std::int64_t& value : values) {
    if (value <= 0) continue;
    const int excess = std::bit_width(static_cast<std::uint64_t>(value)) - bits;
    if (excess > 0) value = (value + (std::int64_t{1} << (excess - 1))) >> excess << excess;
  }
}

std::string Harmless(std::string_view text, std::size_t most) {
  std::string clean;
  std::size_t characters = 0;
  while (!text.empty() && characters < most) {
    const auto [c, length] = NextCharacter(text);
    if (c < 0)
      clean += "\xef\xbf\xbd";
    else if (c == '\n' || c == '\t' || c == '\r')
      clean += ' ';
    else if (Deceives(c))
      clean += c < 0x10000 ? fmt::format("\\u{:04x}", c) : fmt::format("\\u{{{:x}}}", c);
    else
      clean += text.substr(0, length);
    text.remove_prefix(length);
    ++characters;
  }
  if (!text.empty()) clean += fmt::format(" ... ({} more bytes)", text.size());
  return clean;
}

void MakeHarmless(PageJson& json) {
  if (json.is_string()) {
    json = Harmless(json.get_ref<const std::string&>());
  } else if (json.is_array()) {
    for (PageJson& each : json) MakeHarmless(each);
  } else if (json.is_object()) {
    for (auto& [key, value] : json.items())
      if (key != "packed") MakeHarmless(value);
  }
}

std::string ScriptSafe(const PageJson& json) {
  const std::string text = json.dump(-1, ' ', false, PageJson::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  // JSON has none of these characters outside of strings, and inside of strings any character may be written by its
  // number.
  for (const char c : text) {
    if (c == '<')
      safe += "\\u003c";
    else if (c == '>')
      safe += "\\u003e";
    else if (c == '&')
      safe += "\\u0026";
    else
      safe += c;
  }
  return safe;
}

std::string HtmlEscaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

}  // namespace lockstep::report
