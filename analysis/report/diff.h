#pragma once
// Renders a comparison of two runs: for a terminal, for programs, for a merge request.

#include <string>

#include "analysis/diff/compare.h"
#include "analysis/report/text.h"

namespace lockstep::report {

inline constexpr char kDiffSchema[] = "lockstep.diff/2";

// All end with a newline.
std::string RenderDiffText(const diff::Comparison& comparison, const TextOptions& options);
std::string RenderDiffJson(const diff::Comparison& comparison);
std::string RenderDiffMarkdown(const diff::Comparison& comparison);

}  // namespace lockstep::report
