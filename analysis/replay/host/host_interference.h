#pragma once
// What a run on CPU ranks says of computing and communicating at the same time: where they
// did, and how much each slowed the other. Where the thread that communicates has no core of
// its own they share one, and overlap is little more than taking turns.

#include <cstdint>
#include <utility>
#include <vector>

#include "analysis/replay/graph/recorded_run.h"
#include "core/interval.h"

namespace lockstep::replay {

class HostRun;

struct HostOverlap {
  std::vector<IntervalSet> transferring;  // [rank]: while a transfer of it was under way. Cluster time.
  // [collective]: the transfer's time by how many of its members computed meanwhile: (share, ns), shares ascending.
  std::vector<std::vector<std::pair<double, std::int64_t>>> computing;

  // A transfer's length alone as a share of its length as recorded.
  double AloneShare(std::uint32_t collective, double transfer_slowdown) const;
};

// From a replay of the run with nothing changed.
HostOverlap OverlapOf(const HostRun& run);

// HostRun::EstimateInterference is made of:
// Compute: what the training thread lacked of its core's time in its own work, while transfers were under way.
// Transfers: the slowdown with which reductions of nearly the same size cost nearly the same, whether or not ranks
// computed meanwhile. 0 each where runs do not show it.

}  // namespace lockstep::replay
