#pragma once
// Which function on a recorded stack the user knows.

#include <cstdint>

#include "core/schema.h"

namespace lockstep::analysis {

// Row of stacks: the job's own function with a source line that lies nearest to the call, or else the innermost one.
inline std::uint32_t JobFrame(const schema::Stacks& stacks, std::uint32_t innermost) {
  // A caller comes before what it calls: damage must not make a ring of them.
  for (std::uint32_t row = innermost; row < stacks.rows();
       row = stacks.parent[row] < row ? stacks.parent[row] : schema::kNone)
    if (stacks.library[row] == 0 && stacks.line[row] != 0) return row;
  return innermost;
}

}  // namespace lockstep::analysis
