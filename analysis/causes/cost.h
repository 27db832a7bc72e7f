#pragma once
// What a cause costs: per step and rank, and what that comes to for the job.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/causes/rank_events.h"
#include "analysis/core/model.h"

namespace lockstep::analysis {

// Of one rank, beside its stretches (all, or those it looked at).
struct RankCost {
  RankCost() = default;
  // Of all stretches: 0 until something is added.
  explicit RankCost(const RankEvents& events);
  // Of the stretches with a critical path.
  static RankCost OfPaths(const RankEvents& events);
  std::int32_t rank = -1;
  bool per_step = false;
  std::vector<std::int64_t> step, window_ns, ns;
  std::int64_t Total() const;
  std::int64_t Window() const;
};

struct Cost {
  std::int64_t ns = 0;  // Per step; of runs without steps of the window's mean length.
  double share = 0;     // Of the step or the window.
  bool per_step = false;
  bool intermittent = false;                                         // `ns` is the mean over steps.
  std::optional<std::pair<std::int64_t, std::int64_t>> interval_ns;  // 95 %, bootstrap over steps.
};

// Per step the lower median over ranks: what one rank alone suffers is a straggler's business. Of that the
// lower median over steps; the mean, at most the step, where the cause is intermittent: in fewer than half of the steps
// and in a fifth of them and two at least (what is rarer is a burst: stragglers/bursts.cc). A step has it that spends 1
// % of the step on it. `whole_ns`: length of the step or window that shares are taken of.
Cost CostOf(const std::vector<RankCost>& ranks, std::int64_t whole_ns, std::uint64_t seed);

void SetPrice(const Cost& cost, Finding& finding);
// "1.2 ms of each 17 ms step", "12 % of the time".
std::string OfTheStep(const Cost& cost, std::int64_t whole_ns);

}  // namespace lockstep::analysis
