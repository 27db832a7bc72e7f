#pragma once
// A set of correlation ids. They are numbered in order of launch, so neighbours are mostly in the set together or not
// at all: 64 bytes for 512 of them.

#include <array>
#include <cstdint>
#include <unordered_map>

namespace lockstep::merge {

class CorrelationSet {
 public:
  // False if it was in already.
  bool Insert(std::uint64_t id) {
    Page& page = pages_[id >> 9];
    std::uint64_t& word = page[id >> 6 & 7];
    const std::uint64_t bit = std::uint64_t{1} << (id & 63);
    const bool fresh = (word & bit) == 0;
    word |= bit;
    return fresh;
  }
  bool Contains(std::uint64_t id) const {
    if (id >> 9 != recent_number_ || recent_ == nullptr) {
      const auto at = pages_.find(id >> 9);
      if (at == pages_.end()) return false;
      recent_ = &at->second;
      recent_number_ = id >> 9;
    }
    return ((*recent_)[id >> 6 & 7] >> (id & 63) & 1) != 0;
  }

 private:
  using Page = std::array<std::uint64_t, 8>;
  std::unordered_map<std::uint64_t, Page> pages_;  // Its elements do not move.
  mutable const Page* recent_ = nullptr;
  mutable std::uint64_t recent_number_ = 0;
};

}  // namespace lockstep::merge
