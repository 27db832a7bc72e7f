#pragma once
// When other ranks waited for a rank.

#include <cstdint>

#include "core/interval.h"
#include "merge/timeline/timeline.h"

namespace lockstep::merge {

// When others waited for this rank in collectives, cluster time: from the second to last arrival to its own, where it
// came last by more than the clocks' error. These are the charges of definitions.md.
IntervalSet ChargedTo(const Timeline& timeline, std::int32_t rank);

// Whether a moment is within one of the intervals.
bool Within(const IntervalSet& set, std::int64_t ns);

}  // namespace lockstep::merge
