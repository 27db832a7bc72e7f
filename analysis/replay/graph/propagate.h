#pragma once
// Plays a graph without events: where nothing depends on the order of time, what each operation needs says when it
// begins, in whatever order they are looked at. Rank by rank as far as each gets, which memory likes: some five times
// as fast as events in order of time. Of simulate.h only.

#include <optional>

#include "analysis/replay/graph/graph.h"
#include "analysis/replay/graph/simulate.h"
#include "analysis/replay/graph/structure.h"

namespace lockstep::replay {

// By simulate.h's rules without interference; structure.fixed_order must be true. Nothing if operations wait for each
// other for ever.
std::optional<Schedule> Propagate(const Graph& graph, const Structure& structure);

}  // namespace lockstep::replay
