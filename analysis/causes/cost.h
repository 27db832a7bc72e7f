#pragma once
// Computes what a cause costs: per step and rank, and from these for the job.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/causes/rank_events.h"
#include "analysis/core/model.h"

namespace lockstep::analysis {

// The cost on one rank, beside its stretches (all, or those examined).
struct RankCost {
  RankCost() = default;
  // Covers all stretches: 0 until something is added.
  explicit RankCost(const RankEvents& events);
  // Covers the stretches with a critical path.
  static RankCost OfPaths(const RankEvents& events);
  std::int32_t rank = -1;
  bool per_step = false;
  std::vector<std::int64_t> step, window_ns, ns;
  // The stretches that come next.
  void Add(RankCost&& next);
  std::int64_t Total() const;
  std::int64_t Window() const;
};

struct Cost {
  std::int64_t ns = 0;  // Per step; in runs without steps for a window of mean length.
  double share = 0;     // Of the step or the window.
  bool per_step = false;
  bool intermittent = false;                                         // It is in some of the steps only.
  std::optional<std::pair<std::int64_t, std::int64_t>> interval_ns;  // 95 %, bootstrap over steps.
};

// Per step the cost is the lower median over ranks, because what a single rank suffers is reported as a straggler. Over
// steps it is the mean, at most the step. The cause is intermittent if it is in fewer than half of the steps, and in at
// least a fifth of them and two (rarer ones are bursts: stragglers/bursts.cc). A step has the cause if it spends 1 % of
// its time on it. `whole_ns`: length of the step or window to which shares refer.
Cost CostOf(const std::vector<RankCost>& ranks, std::int64_t whole_ns, std::uint64_t seed);

void SetPrice(const Cost& cost, Finding& finding);
Part PartOf(const Cost& cost, std::int64_t whole_ns);

}  // namespace lockstep::analysis
