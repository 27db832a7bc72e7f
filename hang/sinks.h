#pragma once
// Where the blame ends: the ranks and operations that everything waits for and that wait for nothing else.

#include <cstdint>
#include <vector>

#include "hang/waits.h"

namespace lockstep::hang {

// Each with its nodes, ascending: ranks by their number, then waits (their number behind that of the ranks). One node:
// a rank that waits for nobody, or an operation that holds itself up. Several: a cycle.
std::vector<std::vector<std::uint32_t>> FindSinks(const Waits& waits);

}  // namespace lockstep::hang
