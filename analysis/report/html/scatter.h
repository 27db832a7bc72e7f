#pragma once
// Transfers against sizes, one point per collective: what the cost curve is drawn through.

#include "analysis/context.h"
#include "analysis/report/html/packed.h"

namespace lockstep::report {

// {"left_out": how many have no certain transfer, "kinds":[{"op","members","count","points": {"bytes","transfer_ns",
// "step"} packed, or "bins": {"bytes","transfer_ns","count"} packed (their middles) above `most_points`}]}; the kind
// with most points first.
PageJson ScatterOf(const analysis::Context& context, std::size_t most_points = 10'000);

}  // namespace lockstep::report
