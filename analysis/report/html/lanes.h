#pragma once
// Some steps of some ranks in full: the timeline of the page.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/context.h"
#include "analysis/core/model.h"
#include "analysis/report/html/packed.h"

namespace lockstep::report {

struct LaneLimits {
  std::size_t ranks = 48;             // Beyond them: those that are named, those furthest from the others, some others.
  std::size_t pieces = 160'000;       // Of all steps and ranks, about: more steps are left out. The page grows by
                                      // some 3 bytes a piece.
  std::size_t pieces_per_step = 600;  // Of one rank; more are drawn coarser.
  std::size_t operations_per_step = 200, ranges_per_step = 60;  // Of one rank; the longest.
};

// Reads the files of the ranks that are shown, `named` first. Steps: the median, worst and best, those from
// `first_step` to `last_step` (-1: none), then others evenly spread, as many as fit; in runs without steps the slices
// of Context. null where there is neither. Layout: web/src/timeline.js. `inside` becomes what the same ranks do inside
// (inside.h), which comes of the same reading; it stays as it is where nothing is read.
PageJson LanesOf(const analysis::Context& context, const analysis::Analysis& analysis,
                 const std::vector<std::int32_t>& named, const LaneLimits& limits, std::int64_t first_step,
                 std::int64_t last_step, PageJson& inside);

}  // namespace lockstep::report
