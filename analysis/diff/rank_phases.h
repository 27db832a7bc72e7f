#pragma once
// What each rank does itself in a phase of its steps, whatever it waits for, and at which rank that changed.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/diff/spread.h"
#include "core/interval.h"
#include "core/schema.h"
#include "merge/timeline/phases.h"

namespace lockstep::diff {

// Phases are ranges with a category: forward, backward, optimizer, input, checkpoint.
struct RankPhase {
  std::int32_t rank = -1;
  std::string phase;     // "backward"
  bool kernels = false;  // Durations of the compute kernels launched in it; else its host time outside communication.
  Spread own_ns;         // Of a step.
};

// One rank's, collected from its tables, which must outlive this.
class PhasesOfRank {
 public:
  PhasesOfRank(const schema::RankTables& tables, std::size_t steps);
  // A kernel that a row of api launched in one of the steps. Its phase is that of the launching thread or, if that has
  // none, of the training thread: autograd's threads work for it.
  void AddKernel(std::uint32_t kernel, std::uint32_t call, std::size_t step);
  // Of a rank without kernels: a step's window on its host.
  void AddHost(Interval window, std::size_t step);
  std::vector<RankPhase> Take(std::int32_t rank) const;

 private:
  std::uint8_t PhaseAt(std::uint32_t thread, std::int64_t time_ns) const;

  const schema::RankTables& tables_;
  const std::size_t steps_;
  std::uint32_t training_;
  std::map<std::uint32_t, std::vector<merge::PhaseStretch>> stretches_;  // By thread; disjoint, by time.
  std::map<std::uint8_t, IntervalSet> own_;                              // On the host, by phase.
  std::map<std::uint8_t, std::vector<double>> sums_ns_;                  // By phase: of each step.
};

// Of one phase: ranks that changed beyond what all have in common, the largest change first, and what they have in
// common.
struct PhaseChange {
  std::string phase;
  bool kernels = false;
  std::int32_t rank = -1;  // -1: all ranks, and base_ns and now_ns are their means.
  double base_ns = 0, now_ns = 0;
  Difference change;     // Of a rank: beyond that of all. Surer than 99 %, as there are many ranks.
  double common_ns = 0;  // Of a rank: the change of all, if that counts by itself; else 0.
};
// `steps`: of the run with fewer of them. Changes from kDiffLeastChange of the step on.
std::vector<PhaseChange> CompareRankPhases(const std::vector<RankPhase>& base, const std::vector<RankPhase>& now,
                                           std::int64_t steps, double step_ns);

}  // namespace lockstep::diff
