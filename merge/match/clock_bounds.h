#pragma once

#include <vector>

#include "core/schema.h"
#include "merge/clock/align.h"

namespace lockstep::merge {

// Collectives of a rank that bound the ranks' clocks: no member leaves before the last one has arrived.
std::vector<AlignCollective> BoundsOf(const schema::RankTables& head);

}  // namespace lockstep::merge
