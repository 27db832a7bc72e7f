#pragma once
// When a rank was not computing: the time in which communication is exposed.

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
  // CPU ranks: the training thread in MPI, in a range marked as input, or waiting for
  // collectives of another thread. GPU
  // ranks: no compute kernel running.
  IntervalSet exposed;
  bool gpu = false;
  // CPU time and run-queue delay of the training thread outside MPI and input,
  // from neighbouring samples with nothing else between them. Parts per wall time
  // of those stretches; below 0: too few samples.
  double cpu_share = -1, offcpu_share = -1;
  struct CpuStretch {
    Interval window;  // Cluster time.
    std::int64_t cpu_ns = 0, delay_ns = -1;
  };
  std::vector<CpuStretch> cpu;  // These stretches, in order of time.
  // The same shares over the stretches within these windows (ordered, disjoint).
  std::pair<double, double> CpuShares(const IntervalSet& windows) const;
};

ExposedActivity ActivityOf(const schema::RankTables& tables, const merge::RankClockMap& clock);

// How a rank's non-blocking collectives were moved on.
struct ProgressCounts {
  std::int64_t posted = 0;     // Non-blocking and persistent, completed.
  std::int64_t early = 0;      // Of them, with at least a tenth of their life before the completing call.
  std::int64_t wait_only = 0;  // Of the early ones: no test of theirs, and MPI entered for less than a tenth of
                               // the time between post and completing call by any thread.
  std::int64_t apart_ns = 0;   // Sum of those times over the wait-only ones.
};
ProgressCounts CountProgress(const schema::RankTables& tables);

}  // namespace lockstep::analysis
