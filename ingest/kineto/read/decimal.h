#pragma once
// Parses numbers of JSON text without double, whose resolution is 256 ns at today's nanoseconds since 1970.

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace lockstep::kineto {

// text x 10^scale; remaining digits after the point are cut. Empty if it is not a finite decimal number or does not
// fit.
std::optional<std::int64_t> ScaledDecimal(std::string_view text, int scale);

// An id: 64 bits, with or without sign; the upper half of unsigned ones comes out
// negative, so that different ids stay different. kAbsent if it is none.
std::int64_t ParseId(std::string_view text);

inline bool IsDigit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

// Digits from `at` on, at most `end`; `value` keeps what was before them. Eight at once
// where the machine's byte order is the text's.
inline const char* Digits(const char* at, const char* end, std::uint64_t& value) {
  if constexpr (std::endian::native == std::endian::little) {
    while (end - at >= 8) {
      std::uint64_t word;
      std::memcpy(&word, at, sizeof(word));
      constexpr std::uint64_t kHigh = 0xF0F0F0F0F0F0F0F0, kZeros = 0x3030303030303030;
      const bool digits = ((word & kHigh) | (((word + 0x0606060606060606) & kHigh) >> 4)) == (kZeros | kZeros >> 4);
      if (!digits) break;
      std::uint64_t sum = word - kZeros;
      sum = sum * 10 + (sum >> 8);
      constexpr std::uint64_t kMask = 0x000000FF000000FF;
      sum = ((sum & kMask) * (100 + (1'000'000ULL << 32)) + ((sum >> 16) & kMask) * (1 + (10'000ULL << 32))) >> 32;
      value = value * 100'000'000 + static_cast<std::uint32_t>(sum);
      at += 8;
    }
  }
  while (at < end && IsDigit(*at)) value = value * 10 + static_cast<std::uint64_t>(*at++ - '0');
  return at;
}

}  // namespace lockstep::kineto
