#pragma once
// A description -> a run directory.

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace lockstep::make_run {

// Writes OUT/manifest.json and OUT/ranks/rank-NNNNN.h5, or a trace file per rank if the
// text says `kineto`; `text` is the description, `name` what errors call it. Existing files
// are replaced. `jobs`: processes, 0 one per allowed core; never changes what is written.
Status MakeRun(std::string_view text, std::string_view name, const std::string& out,
               const std::vector<std::string>& sets, unsigned jobs = 1);

}  // namespace lockstep::make_run
