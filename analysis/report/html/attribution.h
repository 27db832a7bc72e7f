#pragma once
// Which rank arrives last, in which collectives, and where in the step.

#include "analysis/context.h"
#include "analysis/report/html/packed.h"

namespace lockstep::report {

// null where no collective has a last arriver. {"ranks":[those that cost most, most first],"ranks_left_out",
// "kinds":[{"op","bytes","members"}],"by_kind":{"last","charge_ns"} packed rank by rank,"tenths": the same by tenth of
// the step, null without steps}.
PageJson AttributionOf(const analysis::Context& context);

}  // namespace lockstep::report
