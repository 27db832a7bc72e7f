#pragma once
// Two accounts of one job as one: what Lockstep recorded, and the dumps of another program.

#include "hang/progress.h"

namespace lockstep::hang {

// Adds `more` to `progress`: its groups, and what it knows of ranks that `progress` does not. If either has numbers of
// its own for ranks, they become those of the other by the processes' ids. False: these do not tell, and nothing is
// added.
bool Join(Progress& progress, Progress more);

}  // namespace lockstep::hang
