#pragma once
// What each rank's late arrivals cost the others, unit by unit.

#include <cstdint>
#include <vector>

#include "analysis/context.h"
#include "analysis/exposure.h"

namespace lockstep {

// late[unit][position]: mean over the unit's collectives of arrival minus the
// lower median arrival, ns. Within the clocks' error of the instance it is 0.
std::vector<std::vector<double>> Lateness(const Context& context);

// The ranks whose waiting prices a late one: all, or an even selection of them
// in large jobs. Positions, ascending.
std::vector<std::size_t> Witnesses(const Context& context);

// For one witness q: by[culprit][unit] = the time that q's waiting falls into
// [second largest arrival, last arrival] of collectives whose last arriver is
// the culprit, ns. Several in flight count once; time in which another of q's
// collectives transfers does not count. With q's activity exactly its exposed
// part, without (null) at most the step's exposed wait.
std::vector<std::vector<std::int64_t>> WaitsFor(const Context& context, std::size_t witness,
                                                const ExposedActivity* activity);

}  // namespace lockstep
