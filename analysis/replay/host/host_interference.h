#pragma once
// Finds when a run on CPU ranks computed and communicated at the same time, and how much each slowed the other. If the
// thread that communicates has no core of its own, they share one, and overlap is little more than taking turns.

#include <cstdint>
#include <utility>
#include <vector>

#include "analysis/replay/graph/recorded_run.h"
#include "core/interval.h"

namespace lockstep::replay {

class HostRun;

struct HostOverlap {
  std::vector<IntervalSet> transferring;  // [rank]: while one of its transfers was in progress. Cluster time.
  // [collective]: the transfer's time by the share of its members that computed at the same time: (share, ns), shares
  // ascending.
  std::vector<std::vector<std::pair<double, std::int64_t>>> computing;

  // A transfer's length without interference as a share of its recorded length.
  double AloneShare(std::uint32_t collective, double transfer_slowdown) const;
};

// Uses a replay of the run without changes.
HostOverlap OverlapOf(const HostRun& run);

// HostRun::EstimateInterference consists of:
// Compute: the time of its core that the training thread lacked in its own work while transfers were in progress.
// Transfers: the slowdown with which reductions of nearly the same size cost nearly the same, whether or not ranks
// computed at the same time. Each is 0 if the runs do not show it.
// Possible, where no step has both at once: work and a thread that moves data without a pause share the cores of a rank
// evenly, as the kernel's scheduler divides them.

}  // namespace lockstep::replay
