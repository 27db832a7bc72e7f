#include "ingest/nsys/map/places.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

namespace lockstep::nsys {
namespace {

// What rows say of a key; a key of which they say several things says nothing.
template <typename Key, typename Value>
class Agreed {
 public:
  void Say(Key key, Value value) {
    if (said_any_ && key == last_key_ && value == last_value_) return;  // Neighbours mostly are of one stream.
    said_any_ = true, last_key_ = key, last_value_ = value;
    const auto [at, fresh] = said_.try_emplace(key, value);
    if (!fresh && at->second != value) at->second.reset();
  }
  bool Has(Key key) const { return said_.contains(key); }
  std::optional<Value> Of(Key key) const {
    const auto at = said_.find(key);
    return at == said_.end() ? std::nullopt : at->second;
  }

 private:
  std::unordered_map<Key, std::optional<Value>> said_;
  bool said_any_ = false;
  Key last_key_{};
  Value last_value_{};
};

template <typename Column>
bool Filled(const Column& column) {
  return std::any_of(column.begin(), column.end(), [](auto value) { return value != 0; });
}

std::uint64_t StreamKey(std::uint32_t context, std::uint32_t stream) { return std::uint64_t{context} << 32 | stream; }

void FillContexts(std::span<const PlaceColumns> tables) {
  Agreed<std::uint32_t, std::uint32_t> of_stream;
  Agreed<int, std::uint32_t> of_process;
  for (const PlaceColumns& table : tables) {
    if (!Filled(table.context)) continue;
    for (std::size_t i = 0; i < table.context.size(); ++i) {
      of_stream.Say(table.stream[i], table.context[i]);
      of_process.Say(0, table.context[i]);
    }
  }
  for (const PlaceColumns& table : tables) {
    if (Filled(table.context)) continue;
    for (std::size_t i = 0; i < table.context.size(); ++i) {
      auto context = of_stream.Of(table.stream[i]);
      if (!context) context = of_process.Of(0);
      if (context) table.context[i] = *context;
    }
  }
}

}  // namespace

void FillPlaces(std::span<const PlaceColumns> tables, std::size_t kernels,
                const std::vector<std::pair<std::uint32_t, std::uint16_t>>& told) {
  FillContexts(tables);
  std::set<std::uint32_t> known;
  Agreed<std::uint32_t, std::uint16_t> of_context;
  Agreed<std::uint64_t, std::uint16_t> of_stream;
  for (std::size_t table = 0; table < tables.size(); ++table) {
    const PlaceColumns& from = tables[table];
    if (table < kernels) known.insert(from.context.begin(), from.context.end());
    if (!Filled(from.device)) continue;
    for (std::size_t i = 0; i < from.device.size(); ++i) {
      of_context.Say(from.context[i], from.device[i]);
      of_stream.Say(StreamKey(from.context[i], from.stream[i]), from.device[i]);
    }
  }
  for (const auto& [context, device] : told)
    if (!known.contains(context) && !of_context.Has(context)) of_context.Say(context, device);
  for (const PlaceColumns& to : tables) {
    if (Filled(to.device)) continue;
    for (std::size_t i = 0; i < to.device.size(); ++i) {
      auto device = of_context.Of(to.context[i]);
      if (!device) device = of_stream.Of(StreamKey(to.context[i], to.stream[i]));
      if (device) to.device[i] = *device;
    }
  }
}

}  // namespace lockstep::nsys
