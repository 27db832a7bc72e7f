#include "analysis/gpu/gpu_window.h"

namespace lockstep::gpu {

GpuWindow::GpuWindow(const RankView& rank) : rank_(rank) {
  if (rank.timeline == nullptr || rank.timeline->Meta("window") != "hta") return;
  // With one step or none HTA keeps everything, and the host's window has no end.
  constexpr std::int64_t kFarAway = INT64_MAX / 4;
  by_launch_ = !rank.InHostWindow(kFarAway);
  if (by_launch_) launches_ = FindLaunches(rank.tables);
}

}  // namespace lockstep::gpu
