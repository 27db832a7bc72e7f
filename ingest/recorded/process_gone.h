#pragma once
// Whether a process that nobody saw end is there no more.

#include <cstdint>

#include "core/schema.h"

namespace lockstep::recorded {

// Of process `pid` of this rank. False as well where that cannot be told: it ran on another machine, before its last
// boot, or in another pid namespace; or another process has its number by now.
bool ProcessIsGone(const schema::RankTables& head, std::int64_t pid);

}  // namespace lockstep::recorded
