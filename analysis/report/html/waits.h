#pragma once
// Who waits for whom: rank by rank, in collectives and for messages.

#include <cstddef>

#include "analysis/context.h"
#include "analysis/report/html/packed.h"

namespace lockstep::report {

struct WaitLimits {
  std::size_t rows = 48;      // Ranks that are waited for most.
  std::size_t columns = 256;  // Cells of waiting ranks; neighbours share one.
};

// Time for which a rank waited for another in collectives of the analysis window, as merge/timeline/charges.h shares
// it, and for messages whose sender or receiver was late; whether or not compute hides it. What no rank can be charged
// with is in "untold_ns". {"all_ranks","awaited_ranks","untold_ns","awaited":[rank of each row],"waiting":[first rank
// of each column],"ranks_per_column","collective_ns":packed,"message_ns":packed}, row by row, the longest of the ranks
// that share a cell. null where nobody waits.
PageJson WaitsOf(const analysis::Context& context, const WaitLimits& limits = {});

}  // namespace lockstep::report
