#pragma once
// The texts of one batch.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::ingest {

// Texts by number, in order of first appearance.
class LocalStrings {
 public:
  LocalStrings();
  std::uint32_t Intern(std::string_view text);
  std::string_view Text(std::uint32_t id) const { return {bytes_.data() + entries_[id].offset, entries_[id].length}; }
  std::uint64_t Hash(std::uint32_t id) const { return entries_[id].hash; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(entries_.size()); }
  const std::string& bytes() const { return bytes_; }

 private:
  struct Entry {
    std::uint64_t hash;
    std::size_t offset;
    std::uint32_t length;
  };
  void Grow();

  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> slots_;  // Open addressing, kNone empty.
};

}  // namespace lockstep::ingest
