#pragma once
// No overlap where another thread communicates: PyTorch over MPI has one that reduces
// while the backward pass goes on.

#include "analysis/replay/graph/job.h"

namespace lockstep::replay {

// Collectives of threads other than the one that marks steps begin no sooner than that one waits for them, or for
// something that the other thread does later. What nobody waits for stays as it is.
void MoveOnlyWhenAwaited(Job& job);

}  // namespace lockstep::replay
