#pragma once
// What launches and waits prove about a GPU's clock: no operation begins before its launching call began, and no wait
// ends before the work it waited for ended. The tables are one process's; rows may be in any order.

#include <cstdint>
#include <vector>

#include "core/schema.h"

namespace lockstep::trace {

// A bound at a certain time: GPU times minus CPU times were at most (or at least) this.
struct GpuClockBound {
  std::int64_t at_ns, bound_ns;
};

struct GpuClockEvidence {
  std::uint16_t device = 0;
  std::vector<GpuClockBound> at_most;   // Of launches: negative ones are impossible with clocks that agree.
  std::vector<GpuClockBound> at_least;  // Of waits: likewise positive ones.
};

// The difference of two times, unless they are days apart: times of damaged files may have any value.
bool NearDifference(std::int64_t later, std::int64_t earlier, std::int64_t* ns);

// By device. Waits that the trace does not describe in `sync` count if the call's name says for what they wait: of a
// process's only device, for a stream if they were certainly blocked, or for the copy that they are.
std::vector<GpuClockEvidence> CompareGpuTimes(const schema::RankTables& tables);

}  // namespace lockstep::trace
