#pragma once
// Did the data of non-blocking collectives move only inside the calls that waited for it?
// An MPI without a thread of its own promises no more, but a kernel's socket buffers and
// network cards go on meanwhile.

#include <cstdint>
#include <set>
#include <utility>

#include "core/collective.h"

namespace lockstep::replay {

class HostRun;

// Communicators and kinds whose waits refute it: had all moved in the waits, these would have taken the time that the
// bytes take; but many took next to none of what others of nearly the same size took. Collectives beside which another
// one was in flight on the rank are not asked. `run`: read, with `in_wait` as merge has it.
std::set<std::pair<std::uint64_t, CollectiveKind>> MovedOutsideWaits(const HostRun& run);

}  // namespace lockstep::replay
