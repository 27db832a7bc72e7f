#pragma once
// Weak scaling: the run with more ranks that each do the work of one rank now.

#include <cstddef>
#include <cstdint>

#include "analysis/replay/graph/recorded_run.h"
#include "core/result.h"

namespace lockstep::replay {

enum class LatencyGrowth : std::uint8_t {
  kRing,  // Latency grows with the number of ranks: 2 (n - 1) hops.
  kTree,  // Latency grows with its logarithm.
};

// Each new rank does the work of one of the recorded ranks; all ranks' work of a step is scaled by deviations drawn
// from those of all recorded ranks and steps from their step's median, so that the slowest of more ranks is slower. For
// collectives of all ranks the latency grows with their number and the bus bandwidth is unchanged; smaller groups are
// repeated. kUsage, kUnsupported: fewer ranks than now, groups that do not fit, one rank.
Result<Job> WithMoreRanks(const RecordedRun& run, const CostModel& costs, std::size_t ranks, LatencyGrowth growth,
                          std::uint64_t seed);

}  // namespace lockstep::replay
