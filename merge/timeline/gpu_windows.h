#pragma once
// Windows of steps on the GPU, which runs behind the host that marks them.

#include <vector>

#include "core/interval.h"
#include "core/schema.h"
#include "merge/steps/steps.h"

namespace lockstep {

// First GPU event's begin to the last one's end; {0, 0} without any.
Interval GpuExtent(const schema::RankTables& events);

// Replaces each window by the GPU's: first kernel launched in the step to first
// kernel launched in the next one; the last step ends with the first kernel
// launched after it, else with the last GPU event.
std::vector<RankStep> GpuWindows(std::vector<RankStep> host_steps, const schema::RankTables& events);

}  // namespace lockstep
