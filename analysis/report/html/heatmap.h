#pragma once
// Rank by step: what each rank did in each step, for the plot in which a slow rank appears as a row and a global stall
// as a column.

#include "analysis/context.h"
#include "analysis/report/html/packed.h"

namespace lockstep::report {

struct HeatmapLimits {
  std::size_t rows = 400, columns = 500;  // Beyond these, neighbours share a cell, which shows the largest value.
};

// null without steps. {"ranks":[first of each row],"steps":[first of each column],"ranks_per_row","steps_per_column",
// "flags":[of each column: 1 warm-up, 2 incomplete, 4 outside of the analysis
// window],"measures":{"delay_ns":packed,...}}, row by row.
PageJson HeatmapOf(const analysis::Context& context, const HeatmapLimits& limits);

}  // namespace lockstep::report
