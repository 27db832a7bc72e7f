#pragma once
// When the members of a rooted collective over gloo leave it.

#include <cstdint>
#include <vector>

#include "core/collective.h"

namespace lockstep::make_run {

// By number in the group, as `arrivals`. `hop_ns`: from one member to the next. README.md, "gloo".
std::vector<std::int64_t> GlooEnds(CollectiveKind kind, std::uint64_t bytes, std::size_t root,
                                   const std::vector<std::int64_t>& arrivals, std::int64_t hop_ns);

}  // namespace lockstep::make_run
