#include "analysis/stragglers/costliest_rank.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "analysis/rules/stragglers.h"
#include "analysis/stragglers/hidden_waiting.h"
#include "analysis/stragglers/lateness.h"
#include "core/order_statistics.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

std::set<std::size_t> MayCostMost(const Context& context, const Analysis& analysis, const AwaitedTime& awaited) {
  std::set<std::size_t> found;
  const auto add = [&](auto&& of) {
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t p = 0; p < context.ranks().size(); ++p) order.emplace_back(of(p), p);
    std::ranges::stable_sort(order, [](const auto& a, const auto& b) { return a.first > b.first; });
    for (std::size_t i = 0; i < std::min(rules::kCostliestReplayed, order.size()); ++i) found.insert(order[i].second);
  };
  add([&](std::size_t p) { return awaited.Of(p); });
  if (analysis.arrivals.size() == context.ranks().size())
    add([&](std::size_t p) { return static_cast<double>(analysis.arrivals[p].charge_ns); });
  const auto& totals = context.tables().rank_totals;
  std::vector<double> work(context.ranks().size(), 0.0);
  for (std::size_t row = 0; row < totals.rows(); ++row)
    if (const std::size_t p = context.Position(totals.rank[row]); p != kNowhere)
      work[p] = static_cast<double>(totals.compute_ns[row] + totals.blocked_ns[row]);
  add([&](std::size_t p) { return work[p]; });
  return found;
}

// Whether a rank's pieces of work differ from the others' by so much in all only because each differs by chance.
bool IsChance(const Context& context, std::size_t position) {
  const LatenessTable work = WorkBeyond(context);
  std::vector<double> differences, shares;  // By piece; of what it takes on the other ranks.
  double all = 0;
  for (std::size_t u = 0; u < work.mean_ns.size(); ++u) {
    std::vector<double> others = work.mean_ns[u];
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(position));
    const double theirs = MiddleMedian(std::move(others));
    differences.push_back(work.mean_ns[u][position] - theirs);
    shares.push_back(differences.back() / std::max(1.0, theirs + static_cast<double>(work.middle_ns[u])));
    all += differences.back();
  }
  const auto n = static_cast<double>(differences.size());
  // One of two that has a task of its own, as who hands out work, is compared with nobody.
  if (differences.size() < 2 || all <= 0) return true;
  double squares = 0;
  for (const double each : differences) squares += (each - all / n) * (each - all / n);
  if (all >= rules::kCostliestStandardErrors * std::sqrt(squares * n / (n - 1))) return false;
  const double middle = MiddleMedian(shares);
  std::vector<double> deviations;
  for (const double each : shares) deviations.push_back(std::abs(each - middle));
  const double deviation = MiddleMedian(std::move(deviations));
  // Of pieces that differ in length by much the median share tells more than the sum.
  if (middle * std::sqrt(n) >= rules::kCostliestMedianErrors * deviation) return false;
  const double least = rules::kOutlier * deviation;
  double large = 0;
  for (std::size_t u = 0; u < shares.size(); ++u)
    if (std::abs(shares[u] - middle) > least) large += differences[u];
  return large < rules::kCostliestShareOfPieces * all;
}

}  // namespace

std::optional<CostliestRank> CostliestRankOf(const Context& context, const Analysis& analysis, double limit_ns) {
  if (context.units_are_steps() || !analysis.stragglers.empty() || analysis.run.cores_scarce ||
      context.ranks().size() < 2 || context.Replayed() == nullptr)
    return std::nullopt;
  AwaitedTime awaited = AwaitedTimeOf(context, merge::Charges(context.timeline(), context.options().jobs));
  std::vector<std::pair<std::int64_t, std::size_t>> gains;
  for (const std::size_t position : MayCostMost(context, analysis, awaited))
    gains.emplace_back(GainByReplay(context, position), position);
  std::ranges::sort(gains, std::greater());
  const auto [gain_ns, position] = gains.front();
  if (static_cast<double>(gain_ns) < limit_ns || (gains.size() > 1 && !StandsOut(gain_ns, gains[1].first)) ||
      IsChance(context, position))
    return std::nullopt;
  return CostliestRank{position, std::move(awaited)};
}

}  // namespace lockstep::analysis
