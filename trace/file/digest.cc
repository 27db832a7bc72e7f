#include "trace/file/digest.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/hash.h"

namespace lockstep::trace {
namespace {

constexpr std::uint64_t kMultiplier = 0x9fb21c651e98df25u;

}  // namespace

void ValueDigest::Mix(const std::byte* stripe) {
  for (std::size_t lane = 0; lane < 4; ++lane) {
    std::uint64_t word;
    std::memcpy(&word, stripe + lane * 8, 8);
    lanes_[lane] = std::rotl((lanes_[lane] ^ word) * kMultiplier, 29);
  }
}

void ValueDigest::Add(const std::byte* data, std::size_t bytes) {
  const std::size_t held = bytes_ % kStripe;
  bytes_ += bytes;
  if (held != 0) {
    const std::size_t take = std::min(bytes, kStripe - held);
    std::memcpy(pending_ + held, data, take);
    if (held + take < kStripe) return;
    Mix(pending_);
    data += take;
    bytes -= take;
  }
  for (; bytes >= kStripe; data += kStripe, bytes -= kStripe) Mix(data);
  std::memcpy(pending_, data, bytes);
}

std::uint64_t ValueDigest::value() const {
  Hash64 hash;
  for (const std::uint64_t lane : lanes_) hash.Add(lane);
  for (std::size_t i = 0; i < bytes_ % kStripe; ++i) hash.Add(static_cast<std::uint64_t>(pending_[i]));
  hash.Add(bytes_);
  return hash.value();
}

}  // namespace lockstep::trace
