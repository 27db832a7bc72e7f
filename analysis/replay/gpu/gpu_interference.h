#pragma once
// Estimates how much computing and communicating at the same time slow each other on GPUs, and from this the durations
// without interference.

#include <vector>

#include "analysis/replay/gpu/gpu_run.h"
#include "core/interval.h"

namespace lockstep::replay {

// When ranks computed and when transfers moved data, in the recorded run.
class GpuOccupancy {
 public:
  explicit GpuOccupancy(const GpuRun& run);
  const IntervalSet& transferring(std::size_t rank) const { return transferring_[rank]; }
  // For a collective's transfer: how long it moved data while k of its n members computed, at index k.
  std::vector<std::int64_t> ByComputing(std::uint32_t collective, Interval transfer) const;
  // From the latest arrival to the latest end; empty if it is not in the replay.
  const std::vector<Interval>& transfers() const { return transfers_; }

 private:
  std::vector<IntervalSet> computing_, transferring_;
  std::vector<Interval> transfers_;
  std::vector<std::vector<std::uint32_t>> members_;  // [collective]: its ranks.
};

// Applies the rules of simulate.h in reverse.
class GpuAlone {
 public:
  GpuAlone(const GpuRun& run, const Interference& interference) : occupancy_(run), interference_(interference) {}
  std::int64_t Kernel(std::size_t rank, const GpuItem& item) const;
  std::int64_t Transfer(std::uint32_t collective, Interval transfer) const;

 private:
  const GpuOccupancy occupancy_;
  const Interference interference_;
};

}  // namespace lockstep::replay
