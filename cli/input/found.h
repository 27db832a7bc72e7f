#pragma once
// Provides the findings of an analysis to commands that show them beside something else.

#include <string>
#include <vector>

#include "export/common/event.h"
#include "merge/timeline/timeline.h"

namespace lockstep::cli {

// The findings of the last `lockstep analyze` if it is newer than the timeline; else the run is analysed now. A run
// that cannot be analyzed has none; `trouble` contains the reason.
std::vector<exporters::Finding> FindingsOf(const merge::Timeline& timeline, unsigned jobs, std::string& trouble);

}  // namespace lockstep::cli
