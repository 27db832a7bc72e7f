#include "ingest/kineto/map/local_strings.h"

#include <functional>
#include <utility>

#include "core/schema.h"

namespace lockstep::ingest {

using schema::kNone;

LocalStrings::LocalStrings() : slots_(256, kNone) {}

void LocalStrings::Grow() {
  std::vector<std::uint32_t> slots(slots_.size() * 2, kNone);
  for (std::uint32_t id = 0; id < entries_.size(); ++id) {
    std::size_t at = entries_[id].hash & (slots.size() - 1);
    while (slots[at] != kNone) at = (at + 1) & (slots.size() - 1);
    slots[at] = id;
  }
  slots_ = std::move(slots);
}

std::uint32_t LocalStrings::Intern(std::string_view text) {
  const std::uint64_t hash = std::hash<std::string_view>()(text);
  std::size_t at = hash & (slots_.size() - 1);
  for (; slots_[at] != kNone; at = (at + 1) & (slots_.size() - 1)) {
    const Entry& entry = entries_[slots_[at]];
    if (entry.hash == hash && Text(slots_[at]) == text) return slots_[at];
  }
  const auto id = static_cast<std::uint32_t>(entries_.size());
  slots_[at] = id;
  entries_.push_back({hash, bytes_.size(), static_cast<std::uint32_t>(text.size())});
  bytes_.append(text);
  if (entries_.size() * 2 > slots_.size()) Grow();
  return id;
}

}  // namespace lockstep::ingest
