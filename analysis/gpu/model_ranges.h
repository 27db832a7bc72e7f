#pragma once
// Which ranges enclose the model's run: steps, phases, the training loop. Time in such a range says nothing of what the
// host did, and nobody can take it out of the step.

#include <cstdint>
#include <vector>

#include "analysis/gpu/launch_index.h"

namespace lockstep::gpu {

class ModelRanges {
 public:
  // `windows`: those of the rank. `nest`: of all sources. Linear in launches times depth, n log n in ranges.
  ModelRanges(const RankView& rank, const GpuTimeline& timeline, const RangeNest& nest,
              const std::vector<Interval>& windows);
  // A range of category forward, backward or optimizer; a step of the profiler; one of whose name half of the launches
  // are made in; one that takes half of the windows and is launched from at all. Never an operator.
  bool Encloses(std::uint32_t range) const { return encloses_[range]; }

 private:
  std::vector<bool> encloses_;  // Per row of ranges.
};

}  // namespace lockstep::gpu
