#include "merge/readers/kineto/decimal.h"

#include <algorithm>
#include <limits>

#include "merge/readers/kineto/trace_reader.h"

namespace lockstep::kineto {
namespace {

bool IsDigit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

struct Parts {
  bool negative = false;
  std::string_view whole, fraction;  // Digits.
  std::int64_t exponent = 0;
};

std::optional<Parts> Split(std::string_view text) {
  Parts parts;
  std::size_t i = 0;
  const auto digits = [&] {
    const std::size_t begin = i;
    while (i < text.size() && IsDigit(text[i])) ++i;
    return text.substr(begin, i - begin);
  };
  if (i < text.size() && (text[i] == '-' || text[i] == '+')) parts.negative = text[i++] == '-';
  parts.whole = digits();
  if (i < text.size() && text[i] == '.') {
    ++i;
    parts.fraction = digits();
  }
  if (parts.whole.empty() && parts.fraction.empty()) return std::nullopt;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    bool down = false;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) down = text[i++] == '-';
    const std::string_view power = digits();
    if (power.empty()) return std::nullopt;
    for (const char c : power) parts.exponent = std::min<std::int64_t>(parts.exponent * 10 + (c - '0'), 1'000'000'000);
    if (down) parts.exponent = -parts.exponent;
  }
  if (i != text.size()) return std::nullopt;
  return parts;
}

// |value|, none if beyond 64 bits.
std::optional<std::uint64_t> Magnitude(const Parts& parts, int scale) {
  const auto whole = static_cast<std::int64_t>(parts.whole.size());
  const std::int64_t given = whole + static_cast<std::int64_t>(parts.fraction.size());
  const std::int64_t wanted = whole + parts.exponent + scale;  // Digits of the result, leading zeros included.
  std::uint64_t value = 0;
  for (std::int64_t k = 0; k < wanted; ++k) {
    // Only zeros are left: 0e999 is 0 and not a long loop.
    if (k >= given && value == 0) return 0;
    const char c = k < whole   ? parts.whole[static_cast<std::size_t>(k)]
                   : k < given ? parts.fraction[static_cast<std::size_t>(k - whole)]
                               : '0';
    if (__builtin_mul_overflow(value, std::uint64_t{10}, &value) ||
        __builtin_add_overflow(value, static_cast<std::uint64_t>(c - '0'), &value))
      return std::nullopt;
  }
  return value;
}

// The usual case: up to 15 digits, then up to three behind a point and nothing else.
bool QuickMicroseconds(std::string_view text, std::int64_t& ns) {
  std::int64_t value = 0;
  std::size_t i = 0;
  while (i < text.size() && IsDigit(text[i])) value = value * 10 + (text[i++] - '0');
  if (i == 0 || i > 15) return false;
  int places = 0;
  if (i < text.size()) {
    if (text[i++] != '.' || text.size() - i > 3) return false;
    for (; i < text.size(); ++i, ++places) {
      if (!IsDigit(text[i])) return false;
      value = value * 10 + (text[i] - '0');
    }
  }
  for (; places < 3; ++places) value *= 10;
  ns = value;
  return true;
}

}  // namespace

std::optional<std::int64_t> ScaledDecimal(std::string_view text, int scale) {
  // 19 digits could still overflow the quick way's sum.
  if (std::int64_t ns = 0; scale == 3 && text.size() <= 20 && QuickMicroseconds(text, ns)) return ns;
  const auto parts = Split(text);
  if (!parts) return std::nullopt;
  const auto magnitude = Magnitude(*parts, scale);
  if (!magnitude || *magnitude > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return std::nullopt;
  const auto value = static_cast<std::int64_t>(*magnitude);
  return parts->negative ? -value : value;
}

std::int64_t ParseId(std::string_view text) {
  if (!text.empty() && text.size() <= 18) {
    std::int64_t value = 0;
    std::size_t i = 0;
    while (i < text.size() && IsDigit(text[i])) value = value * 10 + (text[i++] - '0');
    if (i == text.size()) return value;
  }
  const auto parts = Split(text);
  if (!parts) return kAbsent;
  const auto magnitude = Magnitude(*parts, 0);
  if (!magnitude) return kAbsent;
  return static_cast<std::int64_t>(parts->negative ? 0 - *magnitude : *magnitude);
}

}  // namespace lockstep::kineto
