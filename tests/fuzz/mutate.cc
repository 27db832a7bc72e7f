#include "fuzz/mutate.h"

#include <algorithm>
#include <cstring>

#include "core/spool_layout.h"

namespace lockstep::fuzz {
namespace {

std::size_t Below(Random& random, std::size_t bound) { return bound == 0 ? 0 : random() % bound; }

// Mostly short, now and then long.
std::size_t Length(Random& random, std::size_t most) {
  return std::min<std::size_t>(most, std::size_t{1} << Below(random, 1 + Below(random, 16)));
}

void DamageOnce(Bytes& bytes, const Bytes& other, std::size_t area, std::size_t area_bytes, Random& random) {
  if (bytes.empty()) return;
  const std::size_t at = std::min(area + Below(random, area_bytes), bytes.size() - 1), left = bytes.size() - at;
  switch (random() % 9) {
    case 0:
      bytes[at] = static_cast<std::byte>(random());
      break;
    case 1:
      bytes[at] ^= static_cast<std::byte>(1u << random() % 8);
      break;
    case 2:
    case 3:
    case 4: {  // An integer in its place.
      const std::size_t width = std::size_t{1} << random() % 4, place = at / width * width;
      const std::uint64_t value = Extreme(random);
      if (place + width <= bytes.size()) std::memcpy(bytes.data() + place, &value, width);
      break;
    }
    case 5: {  // Two slots change places.
      const std::size_t a = at / 32 * 32, b = Below(random, bytes.size()) / 32 * 32;
      if (std::max(a, b) + 32 <= bytes.size())
        std::swap_ranges(bytes.begin() + static_cast<std::ptrdiff_t>(a),
                         bytes.begin() + static_cast<std::ptrdiff_t>(a) + 32,
                         bytes.begin() + static_cast<std::ptrdiff_t>(b));
      break;
    }
    case 6: {  // From elsewhere, over what is there.
      const Bytes& from = other.empty() ? bytes : other;
      const std::size_t source = Below(random, from.size());
      const std::size_t length = std::min({Length(random, left), from.size() - source});
      std::memmove(bytes.data() + at, from.data() + source, length);
      break;
    }
    case 7:
      std::memset(bytes.data() + at, 0, Length(random, left));
      break;
    default: {  // Once more, or not at all: everything behind it moves.
      const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(at);
      const auto length = static_cast<std::ptrdiff_t>(Length(random, left));
      if (random() % 2 == 0) {
        const Bytes copy(first, first + length);
        bytes.insert(first, copy.begin(), copy.end());
      } else {
        bytes.erase(first, first + length);
      }
    }
  }
}

}  // namespace

std::uint64_t Extreme(Random& random) {
  switch (random() % 5) {
    case 0:
      return random() % 4;
    case 1:
      return ~(random() % 4);
    case 2:
      return (std::uint64_t{1} << random() % 64) + random() % 3 - 1;
    case 3:
      return random() % 1000;
    default:
      return random() >> random() % 64;
  }
}

void Damage(Bytes& bytes, const Bytes& other, Random& random) {
  const std::size_t times = 1 + Below(random, 1 + Below(random, 12));
  const std::size_t area = Below(random, bytes.size());
  const std::size_t area_bytes = random() % 4 == 0 ? bytes.size() : 256;
  for (std::size_t i = 0; i < times; ++i)
    DamageOnce(bytes, other, area_bytes == bytes.size() ? 0 : area, area_bytes, random);
  if (random() % 12 == 0) bytes.resize(Below(random, bytes.size() + 1));
}

void SealSpoolBlocks(Bytes& bytes) {
  std::size_t at = 0;
  while (at + sizeof(SpoolBlockHeader) <= bytes.size()) {
    SpoolBlockHeader header;
    std::memcpy(&header, bytes.data() + at, sizeof header);
    if (header.magic != kSpoolMagic || header.bytes > bytes.size() - at - sizeof header) {
      ++at;
      continue;
    }
    header.crc = 0;
    header.crc = Crc32c(Crc32c(0, &header, sizeof header), bytes.data() + at + sizeof header, header.bytes);
    std::memcpy(bytes.data() + at, &header, sizeof header);
    at += sizeof header + header.bytes;
  }
}

}  // namespace lockstep::fuzz
