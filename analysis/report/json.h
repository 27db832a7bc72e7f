#pragma once
// analysis.json, schema "lockstep.analysis/1" (docs/definitions.md).

#include <string>

#include "analysis/core/model.h"

namespace lockstep::report {

inline constexpr char kAnalysisSchema[] = "lockstep.analysis/1";

// Ends with a newline. Same analysis, same bytes.
std::string RenderJson(const analysis::Analysis& analysis);

}  // namespace lockstep::report
