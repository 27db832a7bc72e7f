#pragma once
// A description -> a run directory.

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace lockstep::make_run {

// Writes OUT/manifest.json and OUT/ranks/rank-NNNNN.h5; `text` is the
// description, `name` what errors call it. Existing rank files are replaced.
Status MakeRun(std::string_view text, std::string_view name, const std::string& out,
               const std::vector<std::string>& sets);

}  // namespace lockstep::make_run
