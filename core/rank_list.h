#pragma once
// Ranks on a command line: "0-3,7". Every flag that takes ranks reads them here.

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// Items between commas: a rank; A-B, both included; A:B, without B, as steps are given. Each as its first rank and the
// one behind its last; nothing for any other text.
std::optional<std::vector<std::pair<std::int32_t, std::int32_t>>> ParseRankSpans(std::string_view text);

// What an error says to do: how such a list is written.
inline constexpr std::string_view kRankListExample = "0-3,7";

}  // namespace lockstep
