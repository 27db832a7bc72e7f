#pragma once
// The kinds of findings: rows LS_FINDING beside their words (analysis/words/), whose enum identifies them wherever they
// are made or looked up.

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep::analysis {

enum class FindingId : std::uint8_t {
#define LS_FINDING(id, ...) id,
#include "analysis/words/findings.inc"  // By CMake from these rows.
#undef LS_FINDING
};

struct FindingKind {
  std::string_view name;   // In JSON: "straggler.arrival". Stable.
  std::string_view label;  // In the verdict: "straggler".
  FindingId same_time_as;  // Findings that agree in this price the same time of the step.
};

inline constexpr auto kFindingKinds = std::to_array<FindingKind>({
#define LS_FINDING(id, name, label, same_time_as) {name, label, FindingId::same_time_as},
#include "analysis/words/findings.inc"  // By CMake from these rows.
#undef LS_FINDING
});

constexpr const FindingKind& KindOf(FindingId id) { return kFindingKinds[static_cast<std::size_t>(id)]; }

}  // namespace lockstep::analysis
