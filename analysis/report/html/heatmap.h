#pragma once
// Rank by step: what each rank did in each step, for the plot in which a slow rank appears as a row and a global stall
// as a column.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/context.h"
#include "analysis/report/html/packed.h"

namespace lockstep::report {

struct HeatmapLimits {
  std::size_t rows = 400, columns = 500;  // Beyond these, neighbours share a cell, which shows the largest value.
  std::size_t pinned = 8;                 // Ranks that have a row of their own besides.
};

// null without steps. {"ranks":[first of each row],"steps":[first of each column],"ranks_per_row","steps_per_column",
// "flags":[of each column: 1 warm-up, 2 incomplete, 4 outside of the analysis
// window],"measures":{"delay_ns":packed,...}}, row by row. Where ranks share rows, "pinned" has those of `named`
// one by one: {"ranks":[..],"measures":{..}}.
PageJson HeatmapOf(const analysis::Context& context, const std::vector<std::int32_t>& named,
                   const HeatmapLimits& limits);

// Lengths of the steps that medians are taken over: {"index":packed,"step_ns":packed}; null without any.
PageJson StepLengthsOf(const analysis::Context& context);

}  // namespace lockstep::report
