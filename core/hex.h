#pragma once
// Writes hashes and digests as text.

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>

namespace lockstep {

// The low `digits` (1 to 16) hexadecimal digits, with leading zeros.
inline std::string Hex(std::uint64_t value, int digits = 16) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return std::string(text + 16 - digits);
}

}  // namespace lockstep
