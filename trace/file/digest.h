#pragma once
// Streaming 64-bit checksum of a column's values, the same however they are cut
// into pieces. Not for security: it distinguishes files with other values.

#include <cstddef>
#include <cstdint>

namespace lockstep::trace {

class ValueDigest {
 public:
  void Add(const std::byte* data, std::size_t bytes);
  std::uint64_t value() const;

 private:
  static constexpr std::size_t kStripe = 32;
  std::uint64_t lanes_[4] = {0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u, 0x94d049bb133111ebu, 0xd6e8feb86659fd93u};
  std::byte pending_[kStripe];
  std::uint64_t bytes_ = 0;

  void Mix(const std::byte* stripe);
};

}  // namespace lockstep::trace
