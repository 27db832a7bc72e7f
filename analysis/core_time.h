#pragma once
// How long training threads were ready to run and had no core, from the kernel's run-queue delay (/proc/TID/schedstat).

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analysis/context.h"

namespace lockstep::analysis {

// Over the usable steps, or the whole window in runs without steps. By rank; only ranks for which it is known.
struct CoreTime {
  struct OfRank {
    std::int32_t rank = -1;
    std::int64_t without_core_ns = 0, span_ns = 0;
    // The part of without_core_ns that is certainly outside communication. A thread that waits there may spin, and then
    // it loses nothing if it has no core. In GPU runs this is all of it, because the communication of a step is not the
    // communication of its host threads.
    std::int64_t outside_calls_ns = 0;
    std::int64_t cpu_ns = -1;  // -1: unknown.
  };
  std::vector<OfRank> ranks;
  std::int64_t steps = 0;  // The number of steps of these sums; 0: the window.
  // The share of the ranks' time; 0 if nothing is known.
  double share() const { return ShareOf(&OfRank::without_core_ns); }
  double outside_calls_share() const { return ShareOf(&OfRank::outside_calls_ns); }
  // The share of the rank in the middle, the lower one of two; 0 if it is not known of half of the job's ranks.
  double common_share(std::size_t job_ranks) const;

 private:
  double ShareOf(std::int64_t OfRank::*part_ns) const {
    double part = 0, span = 0;
    for (const OfRank& rank : ranks) {
      part += static_cast<double>(rank.*part_ns);
      span += static_cast<double>(rank.span_ns);
    }
    return span > 0 ? part / span : 0;
  }
};

CoreTime WithoutCore(const Context& context);

}  // namespace lockstep::analysis
