#include "analysis/causes/cost.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "core/rules/common.h"
#include "merge/timeline/step_length.h"

namespace lockstep::analysis {
RankCost::RankCost(const RankEvents& events) : rank(events.view().rank), per_step(events.per_step()) {
  for (const gpu::RankView::Step& stretch : events.stretches()) {
    step.push_back(stretch.index);
    window_ns.push_back(stretch.window.end - stretch.window.begin);
  }
  ns.assign(step.size(), 0);
}

RankCost RankCost::OfPaths(const RankEvents& events) {
  const RankCost all(events);
  RankCost some;
  some.rank = all.rank;
  some.per_step = all.per_step;
  for (const RankEvents::Path& path : events.paths()) {
    some.step.push_back(all.step[path.stretch]);
    some.window_ns.push_back(all.window_ns[path.stretch]);
  }
  some.ns.assign(some.step.size(), 0);
  return some;
}

void RankCost::Add(RankCost&& next) {
  step.insert(step.end(), next.step.begin(), next.step.end());
  window_ns.insert(window_ns.end(), next.window_ns.begin(), next.window_ns.end());
  ns.insert(ns.end(), next.ns.begin(), next.ns.end());
}

std::int64_t RankCost::Total() const { return std::accumulate(ns.begin(), ns.end(), std::int64_t{0}); }
std::int64_t RankCost::Window() const { return std::accumulate(window_ns.begin(), window_ns.end(), std::int64_t{0}); }

Cost CostOf(const std::vector<RankCost>& ranks, std::int64_t whole_ns, std::uint64_t seed) {
  Cost cost;
  if (ranks.empty() || whole_ns <= 0) return cost;
  cost.per_step = std::all_of(ranks.begin(), ranks.end(), [](const RankCost& r) { return r.per_step; });
  if (!cost.per_step) {
    std::vector<double> shares;
    for (const RankCost& rank : ranks)
      if (rank.Window() > 0) shares.push_back(static_cast<double>(rank.Total()) / static_cast<double>(rank.Window()));
    cost.share = LowerMedian(std::move(shares));
    cost.ns = static_cast<std::int64_t>(std::llround(cost.share * static_cast<double>(whole_ns)));
    return cost;
  }
  std::map<std::int64_t, std::vector<std::int64_t>> by_step;
  for (const RankCost& rank : ranks)
    for (std::size_t i = 0; i < rank.step.size(); ++i) by_step[rank.step[i]].push_back(rank.ns[i]);
  std::vector<std::int64_t> series;
  for (auto& [step, values] : by_step) series.push_back(LowerMedian(std::move(values)));
  cost.ns = std::min(whole_ns, merge::MeanLength(series));
  cost.intermittent = IsIntermittent(series, rules::kWorthShare * static_cast<double>(whole_ns));
  cost.share = static_cast<double>(cost.ns) / static_cast<double>(whole_ns);
  if (series.size() >= rules::kScatter) {
    const std::vector<double> values(series.begin(), series.end());
    const auto [low, high] = BootstrapInterval(values, BlockLength({values}), Statistic::kMean, seed);
    cost.interval_ns = {std::llround(low), std::llround(high)};
  }
  return cost;
}

void SetPrice(const Cost& cost, Finding& finding) {
  if (cost.per_step) {
    finding.saves_ns_per_step = cost.ns;
    finding.saves_interval_ns = cost.interval_ns;
    finding.intermittent = cost.intermittent;
  } else {
    finding.saves_share = cost.share;
  }
}

Part PartOf(const Cost& cost, std::int64_t whole_ns) { return {cost.ns, whole_ns, cost.per_step, cost.intermittent}; }

}  // namespace lockstep::analysis
