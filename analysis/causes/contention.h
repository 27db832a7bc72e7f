#pragma once
// Computes for how much of their time ranks are ready to run and have no core.

#include <cstdint>
#include <vector>

#include "analysis/context.h"

namespace lockstep::analysis {

// Over the usable steps, or the whole window in runs without steps. By rank; only ranks for which it is known.
struct CoreTime {
  struct OfRank {
    std::int32_t rank = -1;
    std::int64_t without_core_ns = 0, span_ns = 0;
    // The part of without_core_ns that is certainly outside MPI calls. A thread that waits in such a call may spin, and
    // then it loses nothing if it has no core. In GPU runs this is all of it, because the communication of a step is
    // not the communication of its host threads.
    std::int64_t outside_calls_ns = 0;
    std::int64_t cpu_ns = -1;  // -1: unknown.
  };
  std::vector<OfRank> ranks;
  std::int64_t steps = 0;  // The number of steps of these sums; 0: the window.
  // The share of the ranks' time; 0 if nothing is known.
  double share() const { return ShareOf(&OfRank::without_core_ns); }
  double outside_calls_share() const { return ShareOf(&OfRank::outside_calls_ns); }

 private:
  double ShareOf(std::int64_t OfRank::*part_ns) const;
};
CoreTime WithoutCore(const Context& context);

}  // namespace lockstep::analysis
