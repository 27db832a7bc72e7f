#include "ingest/map/mapped.h"

#include "trace/file/strings.h"

namespace lockstep::ingest {

using schema::kNone;

Strings::Strings(schema::Strings& strings, schema::StringBytes& bytes)
    : strings_(strings), bytes_(bytes), slots_(4096, kNone) {}

void Strings::Grow() {
  std::vector<std::uint32_t> slots(slots_.size() * 2, kNone);
  for (std::uint32_t id = 0; id < hashes_.size(); ++id) {
    std::size_t at = hashes_[id] & (slots.size() - 1);
    while (slots[at] != kNone) at = (at + 1) & (slots.size() - 1);
    slots[at] = id;
  }
  slots_ = std::move(slots);
}

std::uint32_t Strings::Intern(std::string_view text, std::uint64_t hash) {
  std::size_t at = hash & (slots_.size() - 1);
  for (; slots_[at] != kNone; at = (at + 1) & (slots_.size() - 1))
    if (hashes_[slots_[at]] == hash && lockstep::trace::TextOf(strings_, bytes_, slots_[at]) == text) return slots_[at];
  const auto id = static_cast<std::uint32_t>(hashes_.size());
  slots_[at] = id;
  hashes_.push_back(hash);
  strings_.Append({.offset_bytes = bytes_.value.size(), .length_bytes = static_cast<std::uint32_t>(text.size())});
  bytes_.value.insert(bytes_.value.end(), text.begin(), text.end());
  if (hashes_.size() * 2 > slots_.size()) Grow();
  return id;
}

}  // namespace lockstep::ingest
