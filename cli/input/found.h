#pragma once
// What an analysis found, for commands that show it beside something else.

#include <string>
#include <vector>

#include "export/common/event.h"
#include "merge/timeline/timeline.h"

namespace lockstep::cli {

// As `lockstep analyze` said last, if that is newer than the timeline; else asked now. A run that cannot be analyzed
// has none; `trouble` says why.
std::vector<exporters::Finding> FindingsOf(const merge::Timeline& timeline, unsigned jobs, std::string& trouble);

}  // namespace lockstep::cli
