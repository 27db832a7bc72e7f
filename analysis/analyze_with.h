#pragma once
// Analyze() for those who want more of the run than the Analysis holds.

#include <functional>

#include "analysis/analyze.h"
#include "analysis/context.h"

namespace lockstep::analysis {

// The same; before the context goes, `then` sees it beside the result.
Result<Analysis> AnalyzeWith(const merge::Timeline& timeline, const AnalyzeOptions& options,
                             const std::function<void(const Context&, const Analysis&)>& then);

}  // namespace lockstep::analysis
