#include "core/zero_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace lockstep {
namespace {

// Blocks of this size are given back or kept: a call to the system for less costs more than it saves.
constexpr std::size_t kBlock = std::size_t{64} * 1024;

bool IsZero(const std::byte* data, std::size_t bytes) {
  return data[0] == std::byte{0} && std::memcmp(data, data + 1, bytes - 1) == 0;
}

}  // namespace

void GiveBackZeroPages(void* data, std::size_t bytes) {
  const long page = sysconf(_SC_PAGESIZE);
  if (page <= 0 || kBlock % static_cast<std::size_t>(page) != 0 || bytes < 2 * kBlock) return;
  auto* const begin = static_cast<std::byte*>(data);
  const std::size_t skip = (kBlock - reinterpret_cast<std::uintptr_t>(begin) % kBlock) % kBlock;
  std::size_t from = skip, to = skip;  // The zeros so far, which one call gives back.
  const auto give_back = [&] {
    if (to > from) madvise(begin + from, to - from, MADV_DONTNEED);
  };
  for (std::size_t at = skip; at + kBlock <= bytes; at += kBlock) {
    if (IsZero(begin + at, kBlock)) {
      to = at + kBlock;
      continue;
    }
    give_back();
    from = to = at + kBlock;
  }
  give_back();
}

}  // namespace lockstep
