#pragma once
// Removes overlap if another thread communicates: PyTorch over MPI has a thread that reduces during the backward pass.

#include "analysis/replay/graph/job.h"

namespace lockstep::replay {

// Collectives of threads other than the one that marks steps begin only when that one waits for them, or for something
// that the other thread does later. Those for which nothing waits are unchanged.
void MoveOnlyWhenAwaited(Job& job);

}  // namespace lockstep::replay
