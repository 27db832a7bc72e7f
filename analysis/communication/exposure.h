#pragma once
// Computes when a rank was not computing: the time in which communication is exposed.

#include <cstdint>
#include <utility>
#include <vector>

#include "core/interval.h"
#include "core/result.h"
#include "core/schema.h"
#include "merge/timeline/timeline.h"

namespace lockstep::analysis {

// What an analysis needs of one rank's own tables, in cluster time.
struct ExposedActivity {
  // CPU ranks: the training thread in MPI, in a range marked as input, or waiting for collectives of another thread.
  // GPU ranks: no compute kernel running.
  IntervalSet exposed;
  bool gpu = false;
  // CPU time and run-queue delay of the training thread outside MPI, input and recorded waits, from neighbouring
  // samples with nothing else between them, as shares of the wall time of those stretches. A negative value means that
  // there were too few samples.
  double cpu_share = -1, offcpu_share = -1;
  // CPU ranks: the training thread made no MPI call, and threads of PyTorch's gloo carry what its groups move: in their
  // calls it sleeps, and takes no CPU time.
  bool sleeps_in_calls = false;
  struct CpuStretch {
    Interval window;  // Cluster time.
    std::int64_t cpu_ns = 0, delay_ns = -1;
  };
  std::vector<CpuStretch> cpu;  // Those stretches, in order of time.
  struct StepOfOthers {
    Interval window;  // Cluster time.
    std::int64_t cpu_ns;
  };
  std::vector<StepOfOthers> others;  // What the process's other threads computed in marked steps, where it is known.
  // The same shares over the stretches within these windows (ordered, disjoint).
  std::pair<double, double> CpuShares(const IntervalSet& windows) const;
  // The mean of `others` over the steps that lie for the most part within these windows; negative: there are none.
  std::int64_t MeanOfOthers(const IntervalSet& windows) const;
};

ExposedActivity ActivityOf(const schema::RankTables& tables, const merge::ClockMap& clock);

// Counts how a rank's non-blocking collectives made progress.
struct ProgressCounts {
  std::int64_t posted = 0;     // Non-blocking and persistent, completed.
  std::int64_t early = 0;      // Of these, those with at least a tenth of their duration before the completing call.
  std::int64_t wait_only = 0;  // Of the early ones, those without a test and with less than a tenth of the time between
                               // post and completing call spent in MPI by any thread.
  std::int64_t apart_ns = 0;   // The sum of those times over the wait-only ones.
};
ProgressCounts CountProgress(const schema::RankTables& tables);

}  // namespace lockstep::analysis
