#include <array>
#include <cstring>

#include "core/spool_layout.h"

namespace lockstep {
namespace {

constexpr std::array<std::uint32_t, 256> MakeTable() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = (c >> 1) ^ ((c & 1) ? 0x82f63b78u : 0);
    table[i] = c;
  }
  return table;
}
constexpr auto kTable = MakeTable();

std::uint32_t Software(std::uint32_t crc, const unsigned char* p, std::size_t n) {
  while (n-- != 0) crc = kTable[(crc ^ *p++) & 0xff] ^ (crc >> 8);
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t Hardware(std::uint32_t crc, const unsigned char* p, std::size_t n) {
  std::uint64_t wide = crc;
  for (; n >= 8; n -= 8, p += 8) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  crc = static_cast<std::uint32_t>(wide);
  while (n-- != 0) crc = __builtin_ia32_crc32qi(crc, *p++);
  return crc;
}
#endif

}  // namespace

std::uint32_t Crc32c(std::uint32_t crc, const void* data, std::size_t bytes) {
  const auto* p = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~Hardware(~crc, p, bytes);
#endif
  return ~Software(~crc, p, bytes);
}

}  // namespace lockstep
