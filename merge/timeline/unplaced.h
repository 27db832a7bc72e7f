#pragma once
// How much of what looks like compute of a CPU rank's steps was none, by the CPU clock, though no recorded call shows
// it: raw futexes, page faults, waits under 20 us, files that hold no waits.

#include <cstdint>
#include <vector>

#include "core/counter_curve.h"
#include "core/interval.h"

namespace lockstep::merge {

struct StepOnCpu {
  Interval window;
  std::int64_t compute_ns;
  std::int64_t cpu_ns;      // Of the training thread, exact; -1 unknown.
  std::int64_t workers_ns;  // Of `compute_ns`, what other threads are known to have computed (BlockedTime::computed).
  // What all other threads of the process computed, for this one or not; 0 where none of it was for this one.
  std::int64_t others_ns = 0;
};

// `delay`: the time of the training thread on the run queue; its first windows are those of the steps. Gives per step
// the compute beyond the CPU time and the time without a core. Both bounds of what samples say are kept: a step has no
// more than the line between its samples leaves, and steps in a row no more together than if all that grew between the
// samples around them grew in them. Nor have steps in a row more than what is left of their compute without the CPU
// time of all threads: others_ns is exact only over many ticks of the kernel. Nothing where the CPU time or the delay
// is not known.
std::vector<std::int64_t> Unplaced(const std::vector<StepOnCpu>& steps, const CounterCurve& delay);

}  // namespace lockstep::merge
