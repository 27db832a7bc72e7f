#pragma once
// What ranks do that others wait for: sampled stacks as trees, for the page's flame graphs.

#include "analysis/context.h"
#include "analysis/core/model.h"
#include "analysis/report/html/packed.h"

namespace lockstep::report {

// An entry for each rank that is named as a straggler and whose stack was sampled, at most kMostFlames, in the order in
// which they are named: {"rank","healthy": the rank it is compared with or null,"trees": its own and the healthy
// one's}. A tree: {"rank","samples","late","inside","longest_stop_ns","left_out": nodes that are not in
// it,"functions":[{"name", "file","library"}],"function","parent","line","samples_in","late_in": a value per node,
// callers first; the root's children have the parent -1}. Reads these ranks' files.
inline constexpr std::size_t kMostFlames = 4;
PageJson FlamesOf(const analysis::Context& context, const analysis::Analysis& analysis);

// A function with fewer samples than this part of them, or beyond so many, is not told from what called it.
inline constexpr std::size_t kMostFlameNodes = 400;
inline constexpr double kLeastFlameShare = 0.004;

}  // namespace lockstep::report
