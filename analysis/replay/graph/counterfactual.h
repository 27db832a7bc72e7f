#pragma once
// Computes what slow operations cost: the job replayed with the ordinary durations for some of its operations.
// Definitions and notation of ByteDance's what-if analysis (OSDI'25, 3.3 and 4): T is the replayed original, so that
// the simulator's bias cancels, T_ideal the replay with all durations ordinary;
//   S   = T / T_ideal
//   S_x = T with all durations ordinary but x's / T_ideal; of a type of operation, a worker, a group of workers
//   M_X = (T - T with X's durations made ordinary) / (T - T_ideal), "removed"
//   and (T with X's alone real - T_ideal) / (T - T_ideal), "added"
// M may be below 0 and above 1, because contributions of several causes can overlap.

#include <cstdint>
#include <functional>
#include <vector>

#include "analysis/replay/graph/simulate.h"
#include "core/result.h"

namespace lockstep::replay {

// Lengths of the steps in a schedule; the mean over them is T.
using StepLengths = std::function<std::vector<std::int64_t>(const Schedule&)>;

class Counterfactual {
 public:
  // The graph's durations are unchanged between calls; not for several threads at once. `ordinary_ns`: per operation,
  // its duration in an ideal job.
  Counterfactual(Graph& graph, std::vector<std::int64_t> ordinary_ns, StepLengths lengths);

  // Mean step in ns with the ordinary durations for the operations for which `ordinary(operation)` holds. Returns the
  // simulator's errors.
  Result<double> Replay(const std::function<bool(std::uint32_t)>& ordinary);
  // The same, step by step.
  Result<std::vector<std::int64_t>> ReplaySteps(const std::function<bool(std::uint32_t)>& ordinary);

  struct Contribution {
    double slowdown;        // S_x
    double removed, added;  // M_x by both definitions; NaN if T = T_ideal.
  };
  // The contribution of the operations for which `belongs` holds.
  Result<Contribution> Of(const std::function<bool(std::uint32_t)>& belongs);
  Result<double> Slowdown();  // S

 private:
  Status Ends();  // Computes T and T_ideal.

  Graph& graph_;
  Simulator simulator_;
  StepLengths lengths_;
  std::vector<std::int64_t> real_ns_, ordinary_ns_;
  double real_mean_ns_ = -1, ideal_mean_ns_ = -1;
};

}  // namespace lockstep::replay
