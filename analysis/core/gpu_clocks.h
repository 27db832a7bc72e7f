#pragma once
// Whether GPU times of a run can be believed, and compared with the host's.

#include <cstdint>

#include "merge/timeline/timeline.h"

namespace lockstep::analysis {

// 0 where it is less than what is worth a finding, in a mean step or, without steps, in the longest rank.
struct GpuClocks {
  std::int64_t moved_ns = 0;        // An import moved GPU times by so much, the largest of all ranks.
  std::int64_t contradicts_ns = 0;  // Launches and waits contradict each other by up to this.
  std::int64_t overlap_ns =
      0;  // Operations last so long beyond the begin of the next of their stream, in all, at most.
};

GpuClocks NotableGpuClocks(const merge::Timeline& timeline);

}  // namespace lockstep::analysis
