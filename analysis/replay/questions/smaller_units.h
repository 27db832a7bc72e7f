#pragma once
// More and smaller units of sharded parameters (FSDP and similar): what is gathered and reduced at once is so much that
// nothing hides it, because a unit's work needs all of it, and its gradients are ready only after all of its work.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "analysis/replay/questions/what_if.h"

namespace lockstep::replay {

struct SmallerUnits {
  std::size_t parts = 0;     // Of each unit.
  std::int64_t gain_ns = 0;  // Per step, median: the most that there is.
  // 95 %, from the steps; nothing for few steps.
  std::optional<std::pair<std::int64_t, std::int64_t>> gain_interval_ns;
  // Of a step on the rank in the middle, medians: transfers of its units; their part with no work beside it.
  std::int64_t transfers_ns = 0, bare_ns = 0;
  std::string limit;  // As Answer::limit.
};

// The number of parts of each unit that gains most; the recording does not tell whether a unit can be divided. Of each
// transfer remains at least that of one part, and what the unit's own work cannot hide: the work between the unit's
// arrival and the next unit's need of its own, or before its gradients are reduced, as far as nothing moves beside it
// yet. A part costs a latency more and no more than that, and work is divided evenly, so it is a bound.
// Nothing if
//  - a thread waits in the call that gathers or reduces, or a library carries it while the thread waits (PyTorch's
//    FSDP over gloo): parts would be waited for one by one;
//  - there are more than 16 units, or 32 all-gathers in a step: they are units of layers;
//  - less than a quarter of the transfers has no work beside it: units are small enough to hide each other's;
//  - it does not gain more than `worth_ns` with the latency of the run; where that is not known, with 1 ms, which few
//    networks have;
//  - ranks or steps gather or reduce different units.
// Whether posted operations move while the ranks compute is for the caller to know. `schedule`: of `job`, which is the
// run's own without changes.
std::optional<SmallerUnits> FindSmallerUnits(const WhatIf& what_if, const Job& job, const Schedule& schedule,
                                             std::int64_t worth_ns);

}  // namespace lockstep::replay
