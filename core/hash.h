#pragma once
// 64-bit hash for identities that every rank must compute alike. Not for
// security. splitmix64 finaliser over words; stable across machines (bytes are
// taken in little-endian order).

#include <cstdint>
#include <cstring>
#include <string_view>

namespace lockstep {

class Hash64 {
 public:
  constexpr void Add(std::uint64_t word) { state_ = Mix(state_ ^ Mix(word + 0x9e3779b97f4a7c15u)); }
  void Add(std::string_view text) {
    Add(static_cast<std::uint64_t>(text.size()));
    while (!text.empty()) {
      std::uint64_t word = 0;
      const std::size_t n = text.size() < 8 ? text.size() : 8;
      std::memcpy(&word, text.data(), n);
      Add(word);
      text.remove_prefix(n);
    }
  }
  // Never 0, because 0 means "no identity".
  constexpr std::uint64_t value() const { return state_ == 0 ? 1 : state_; }

 private:
  static constexpr std::uint64_t Mix(std::uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  std::uint64_t state_ = 0x6c6f636b73746570u;
};

}  // namespace lockstep
