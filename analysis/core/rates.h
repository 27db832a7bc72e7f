#pragma once
// Which collectives say how fast the network is, and the condition for reporting a rate.

#include <cstddef>

#include "core/schema.h"

namespace lockstep::analysis {

// All members are there and agree.
inline bool IsSound(const schema::TlCollectives& t, std::size_t row) {
  return !t.mismatch[row] && !t.violation[row] && t.seen[row] == t.expected[row];
}

// Whether the transfer of an instance is that of its kind and size. A kernel that carries several operations says of
// none how long it took.
inline bool HasCertainTransfer(const schema::TlCollectives& t, std::size_t row) {
  return t.transfer_ns[row] >= 0 && IsSound(t, row) && !t.censored[row] && !t.uneven[row] && t.operations[row] <= 1;
}

}  // namespace lockstep::analysis
