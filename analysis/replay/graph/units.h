#pragma once
// Units of parameters that are sharded over the ranks (FSDP and similar): which collectives gather a unit before its
// use, and which reduce its gradients to shards.

#include <vector>

#include "analysis/replay/graph/recorded_run.h"

namespace lockstep::replay {

// [collective], as RecordedRun::collectives.
struct UnitCollectives {
  std::vector<bool> gathers, reductions;
  // Bytes that the first rank's steps reduce for units.
  std::uint64_t reduced_bytes = 0;
};

// Reductions are the reduce-scatters. Where the run has none, they are the all-reduces of which an all-gather of the
// same communicator, earlier in their step, has the bytes (half or twice of them where parameters and gradients are of
// other types): over gloo, PyTorch's reduce-scatter is an all-reduce of which each rank keeps its part (PyTorch 2.15,
// which knows no "gloo:reduce_scatter"). DDP gathers nothing before it reduces.
// Gathers are the all-gathers of 64 KiB or more, and smaller ones that have the bytes of a reduction: others carry
// bookkeeping.
UnitCollectives FindUnits(const RecordedRun& run);

}  // namespace lockstep::replay
