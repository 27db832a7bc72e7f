#include "core/rank_list.h"

#include <charconv>

namespace lockstep {

std::optional<std::vector<std::pair<std::int32_t, std::int32_t>>> ParseRankSpans(std::string_view text) {
  std::vector<std::pair<std::int32_t, std::int32_t>> spans;
  const char *at = text.data(), *const end = at + text.size();
  const auto number = [&](std::int64_t& value) {
    if (at == end || *at < '0' || *at > '9') return false;
    std::int32_t read = 0;
    const auto [stop, error] = std::from_chars(at, end, read);
    at = stop;
    value = read;
    return error == std::errc() && read < INT32_MAX;
  };
  do {
    std::int64_t first = 0, last = 0;
    if (!number(first)) return std::nullopt;
    last = first;
    if (at != end && (*at == '-' || *at == ':')) {
      const bool without_last = *at++ == ':';
      if (!number(last)) return std::nullopt;
      last -= without_last ? 1 : 0;
    }
    if (last < first) return std::nullopt;
    spans.emplace_back(static_cast<std::int32_t>(first), static_cast<std::int32_t>(last + 1));
    if (at == end) return spans;
  } while (*at++ == ',');
  return std::nullopt;
}

}  // namespace lockstep
