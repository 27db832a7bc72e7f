#pragma once
// Weak scaling: a run as it would be with more ranks that each do what one does now.

#include <cstddef>
#include <cstdint>

#include "analysis/replay/graph/recorded_run.h"
#include "core/result.h"

namespace lockstep::replay {

enum class LatencyGrowth : std::uint8_t {
  kRing,  // With the ranks: 2 (n - 1) hops.
  kTree,  // With their logarithm.
};

// Each new rank does what one of the recorded ranks does; all ranks' work of a step is scaled by deviations drawn from
// those of all recorded ranks and steps from their step's median, so that the slowest of more ranks is slower. Of
// collectives that all ranks take part in the latency grows with the ranks and the bus bandwidth stays what it was;
// smaller groups are repeated. kUsage, kUnsupported: fewer ranks than now, groups that do not fit, one rank.
Result<Job> WithMoreRanks(const RecordedRun& run, const CostModel& costs, std::size_t ranks, LatencyGrowth growth,
                          std::uint64_t seed);

}  // namespace lockstep::replay
