#pragma once
// Which point-to-point operations never took place.

#include <cstddef>

#include "core/schema.h"
#include "core/schema_enums.h"

namespace lockstep {

// A send that failed was not sent, and nothing was posted where the post failed: neither is a message, nor has a number
// among those of its channel. A receive that was there for its message and failed has taken it: it was longer than the
// buffer (MPI-4.1, 3.2.4).
inline bool IsRefused(const schema::P2p& p2p, std::size_t row) {
  return p2p.outcome[row] == schema::RequestOutcome::kError &&
         (p2p.direction[row] != schema::Direction::kReceive || p2p.end_ns[row] == schema::kNoTime);
}

}  // namespace lockstep
