#include "ingest/kineto/read/decimal.h"

#include <algorithm>
#include <limits>

#include "ingest/kineto/read/trace_reader.h"

namespace lockstep::kineto {
namespace {

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
    // Only zeros are left: 0e999 is 0 and must not loop long.
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

// The usual case: up to 16 digits, then up to three behind a point and nothing else.
bool QuickMicroseconds(std::string_view text, std::int64_t& ns) {
  if (text.size() > 20) return false;
  const char *const begin = text.data(), *const end = begin + text.size();
  std::uint64_t value = 0;
  const char* at = Digits(begin, end, value);
  if (at == begin || at - begin > 16) return false;
  int missing = 3;
  if (at < end) {
    if (*at++ != '.') return false;
    const char* const fraction = at;
    at = Digits(at, end, value);
    missing = 3 - static_cast<int>(at - fraction);
    if (at != end || missing < 0) return false;
  }
  for (; missing > 0; --missing) value *= 10;
  ns = static_cast<std::int64_t>(value);
  return ns >= 0;
}

}  // namespace

std::optional<std::int64_t> ScaledDecimal(std::string_view text, int scale) {
  if (std::int64_t ns = 0; scale == 3 && QuickMicroseconds(text, ns)) return ns;
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
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    if (Digits(text.data(), end, value) == end) return static_cast<std::int64_t>(value);
  }
  const auto parts = Split(text);
  if (!parts) return kAbsent;
  const auto magnitude = Magnitude(*parts, 0);
  if (!magnitude) return kAbsent;
  return static_cast<std::int64_t>(parts->negative ? 0 - *magnitude : *magnitude);
}

}  // namespace lockstep::kineto
