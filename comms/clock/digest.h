#pragma once
// SHA-256 of what comes in pieces.

#include <nettle/sha2.h>

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep::clock {

class Digest {
 public:
  using Value = std::array<std::uint8_t, SHA256_DIGEST_SIZE>;

  Digest() { sha256_init(&context_); }
  void Add(std::string_view piece) {
    sha256_update(&context_, piece.size(), reinterpret_cast<const std::uint8_t*>(piece.data()));
  }
  // Of everything so far; begins anew.
  Value Take() {
    Value value{};
    sha256_digest(&context_, value.size(), value.data());
    return value;
  }

 private:
  sha256_ctx context_{};
};

}  // namespace lockstep::clock
