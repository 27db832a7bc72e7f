#pragma once
// Which ranks a reader of the page looks for.

#include <cstdint>
#include <vector>

#include "analysis/context.h"
#include "analysis/core/model.h"

namespace lockstep::report {

// The ranks that the stragglers and the findings name, each once, in that order.
std::vector<std::int32_t> RanksOfFindings(const analysis::Context& context, const analysis::Analysis& analysis);

}  // namespace lockstep::report
