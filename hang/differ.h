#pragma once
// Whether the ranks' calls of one number are one operation.

#include <cstdint>
#include <vector>

#include "hang/judge.h"
#include "hang/progress.h"

namespace lockstep::hang {

// The member's call of this number; null if it is not among those that are known.
const Operation* CallOf(const Member& member, std::int64_t sequence);

// Whether no rank can leave this operation before all have entered it.
bool HoldsAll(const Operation& call);

// Compares the calls of this number in the group. True: they differ, and `verdict` has cause, sides and culprits.
// Somebody is named only where at least two thirds of the calls agree: whose call is wrong is not decided by a vote of
// two against two.
bool Differ(const Group& group, std::int64_t sequence, Verdict& verdict);

}  // namespace lockstep::hang
