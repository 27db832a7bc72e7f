#pragma once
// Which kernels and copies a table counts.

#include <cstdint>

#include "analysis/gpu/launch_index.h"

namespace lockstep::gpu {

class GpuWindow {
 public:
  explicit GpuWindow(const RankView& rank);

  // May take part in sums over time, cut to the windows. With --window hta only what
  // was launched before the last step began: HTA leaves out the rest, whenever it ran.
  bool KeepsKernel(std::uint32_t row) const { return !by_launch_ || Keeps(launches_.of_kernel[row]); }
  bool KeepsCopy(std::uint32_t row) const { return !by_launch_ || Keeps(launches_.of_copy[row]); }
  // Counts as an event: began in the window.
  bool CountsKernel(std::uint32_t row) const {
    return KeepsKernel(row) && (by_launch_ || rank_.InWindow(rank_.tables.kernels.begin_ns[row]));
  }

 private:
  bool Keeps(std::uint32_t api) const {
    return api != schema::kNone && rank_.InHostWindow(rank_.tables.api.begin_ns[api]);
  }

  const RankView& rank_;
  bool by_launch_ = false;
  LaunchIndex launches_;
};

}  // namespace lockstep::gpu
