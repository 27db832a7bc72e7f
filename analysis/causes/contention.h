#pragma once
// How much of their time ranks are ready to run and have no core.

#include <cstdint>
#include <vector>

#include "analysis/context.h"

namespace lockstep::analysis {

// Of the usable steps, or of the whole window in runs without steps. By rank, those of whom it is known.
struct CoreTime {
  struct OfRank {
    std::int32_t rank = -1;
    std::int64_t without_core_ns = 0, span_ns = 0;
    std::int64_t cpu_ns = -1;  // -1: not known.
  };
  std::vector<OfRank> ranks;
  std::int64_t steps = 0;  // That these sums are over; 0: the window.
  // Of the ranks' time; 0 where nothing is known.
  double share() const;
};
CoreTime WithoutCore(const Context& context);

}  // namespace lockstep::analysis
