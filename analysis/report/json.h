#pragma once
// analysis.json, schema "lockstep.analysis/1" (docs/definitions.md).

#include <string>

#include "analysis/report/model.h"

namespace lockstep {

inline constexpr char kAnalysisSchema[] = "lockstep.analysis/1";

// Ends with a newline. Same analysis, same bytes.
std::string RenderJson(const Analysis& analysis);

}  // namespace lockstep
