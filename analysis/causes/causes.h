#pragma once
// The pass that finds causes in the ranks' own events, with what only its tests choose.

#include <cstdint>

#include "analysis/context.h"
#include "analysis/core/model.h"

namespace lockstep::analysis {

// FindCauses (passes.h), examining about that many rows of a rank at once; which never changes what is found
// (rank_blocks.h).
void FindCausesInBlocks(const Context& context, Analysis& analysis, std::uint64_t block_rows);

}  // namespace lockstep::analysis
