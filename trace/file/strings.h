#pragma once
// Interned texts of a table file: writers intern, readers look up.

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/schema.h"

namespace lockstep::trace {

// Gives each distinct text one row of `strings`. Thread: one at a time. Works for rank files (Strings, StringBytes) and
// timelines (TlStrings, TlStringBytes).
template <typename StringsTable, typename BytesTable>
class StringInterner {
 public:
  StringInterner(StringsTable& strings, BytesTable& bytes) : strings_(strings), bytes_(bytes) {}
  std::uint32_t Intern(std::string_view text) {
    const auto [at, fresh] = ids_.try_emplace(std::string(text), static_cast<std::uint32_t>(strings_.rows()));
    if (fresh) {
      strings_.Append({.offset_bytes = bytes_.value.size(), .length_bytes = static_cast<std::uint32_t>(text.size())});
      bytes_.value.insert(bytes_.value.end(), text.begin(), text.end());
    }
    return at->second;
  }

 private:
  StringsTable& strings_;
  BytesTable& bytes_;
  std::unordered_map<std::string, std::uint32_t> ids_;
};

// The text of row `id`; empty for kNone, out-of-range ids and damaged tables.
// The view lives as long as the tables.
template <typename StringsTable, typename BytesTable>
std::string_view TextOf(const StringsTable& strings, const BytesTable& bytes, std::uint32_t id) {
  if (id >= strings.rows()) return {};
  const std::uint64_t offset = strings.offset_bytes[id], length = strings.length_bytes[id];
  if (offset > bytes.value.size() || length > bytes.value.size() - offset) return {};
  return {reinterpret_cast<const char*>(bytes.value.data()) + offset, static_cast<std::size_t>(length)};
}
inline std::string_view TextOf(const schema::RankTables& t, std::uint32_t id) {
  return TextOf(t.strings, t.string_bytes, id);
}
inline std::string_view TextOf(const schema::TimelineTables& t, std::uint32_t id) {
  return TextOf(t.strings, t.string_bytes, id);
}

// The value of a key of `meta`, "" if absent; of rank files or timelines.
template <typename Tables>
std::string_view MetaValue(const Tables& tables, std::string_view key) {
  for (std::size_t i = 0; i < tables.meta.rows(); ++i)
    if (TextOf(tables, tables.meta.key[i]) == key) return TextOf(tables, tables.meta.value[i]);
  return {};
}
// The same as a number; `otherwise` if it is none.
template <typename Tables>
std::int64_t MetaNumber(const Tables& tables, std::string_view key, std::int64_t otherwise) {
  const std::string_view text = MetaValue(tables, key);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : otherwise;
}

}  // namespace lockstep::trace
