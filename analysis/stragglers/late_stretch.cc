#include "analysis/stragglers/late_stretch.h"

#include <algorithm>
#include <cmath>

#include "analysis/core/binomial.h"
#include "analysis/core/statistics.h"
#include "analysis/rules/stragglers.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

// The number of neighbouring units of the others' lateness that are correlated and count as one.
std::size_t UnitsAlike(const LatenessTable& late, std::size_t position) {
  std::vector<std::vector<double>> others;
  for (std::size_t r = 0; r < late.mean_ns[0].size(); ++r) {
    if (r == position) continue;
    std::vector<double>& series = others.emplace_back();
    for (const auto& unit : late.mean_ns) series.push_back(unit[r]);
  }
  return BlockLengthApartFromShift(others);
}

}  // namespace

std::optional<LateStretch> LateStretchOf(const LatenessTable& late, std::size_t r, double limit) {
  const std::size_t units = late.behind_ns.size();
  if (units < rules::kFewest || late.behind_ns[0].size() < 2) return std::nullopt;
  const std::size_t n = late.behind_ns[0].size();
  std::vector<std::int64_t> worth, noise;
  for (const auto& unit : late.behind_ns) {
    if (static_cast<double>(unit[r]) >= limit) worth.push_back(unit[r]);
    for (std::size_t o = 0; o < n; ++o)
      if (o != r) noise.push_back(unit[o]);
  }
  if (worth.size() < rules::kFewest) return std::nullopt;
  const double least = std::max(limit, rules::kHalf * static_cast<double>(LowerMedian(worth)));
  std::vector<bool> latest(units);
  for (std::size_t u = 0; u < units; ++u) {
    const auto& unit = late.behind_ns[u];
    latest[u] = static_cast<double>(unit[r]) >= least && *std::max_element(unit.begin(), unit.end()) == unit[r];
  }
  // The densest stretch has the largest sum of 1 per late unit, less a fixed amount per unit on time.
  LateStretch stretch;
  int sum = 0, best = 0;
  std::size_t begin = 0;
  for (std::size_t u = 0; u < units; ++u) {
    if (sum <= 0) {
      sum = 0;
      begin = u;
    }
    sum += latest[u] ? 1 : rules::kStretchOnTimeWorth;
    if (sum <= best) continue;
    best = sum;
    stretch.first_unit = begin;
    stretch.last_unit = u;
  }
  const std::size_t length = stretch.last_unit + 1 - stretch.first_unit;
  std::size_t outside = 0;
  std::vector<std::int64_t> within, before_and_after;
  for (std::size_t u = 0; u < units; ++u) {
    const bool in = u >= stretch.first_unit && u <= stretch.last_unit;
    (in ? stretch.late : outside) += latest[u];
    (in ? within : before_and_after).push_back(late.behind_ns[u][r]);
  }
  if (stretch.late < rules::kFewest ||
      static_cast<double>(stretch.late) < rules::kThroughout * static_cast<double>(length) ||
      before_and_after.empty() ||
      static_cast<double>(outside) > rules::kLittle * static_cast<double>(before_and_after.size()))
    return std::nullopt;
  const auto level = static_cast<double>(LowerMedian(within));
  if (static_cast<double>(LowerMedian(before_and_after)) > rules::kLateOnTimeShare * level ||
      level < rules::kStretchTimesNoise * static_cast<double>(LowerQuantile(noise, rules::kOutlierQuantile)))
    return std::nullopt;
  for (std::size_t o = 0; o < n; ++o) {
    if (o == r) continue;
    std::vector<std::int64_t> theirs;
    for (std::size_t u = stretch.first_unit; u <= stretch.last_unit; ++u) theirs.push_back(late.behind_ns[u][o]);
    if (!StandsOut(level, LowerMedian(theirs))) return std::nullopt;
  }
  // The probability covers any rank, any begin and any end.
  const auto alike = static_cast<double>(UnitsAlike(late, r));
  const double draws = std::floor(static_cast<double>(length) / alike),
               hits = std::floor(static_cast<double>(stretch.late) / alike), all = static_cast<double>(units) / alike;
  stretch.p_value =
      std::min(1.0, static_cast<double>(n) * all * all / 2 * BinomialTail(hits, draws, 1 / static_cast<double>(n)));
  return stretch;
}

std::optional<Assessment> AssessStretch(const Context& context, const LateStretch& stretch,
                                        const std::vector<std::int64_t>& price, std::size_t position, double limit) {
  std::vector<double> within;
  for (std::size_t u = stretch.first_unit; u <= stretch.last_unit; ++u) within.push_back(static_cast<double>(price[u]));
  const double share = static_cast<double>(within.size()) / static_cast<double>(price.size());
  double sum = 0;
  for (const double ns : within) sum += ns;
  const double mean = sum / static_cast<double>(price.size());
  if (mean < limit) return std::nullopt;
  const auto [low, high] = BootstrapInterval(within, BlockLength({within}), Statistic::kMean,
                                             context.options().seed + rules::kStragglerSeedStretch);
  Assessment assessment;
  Straggler& straggler = assessment.straggler;
  straggler.rank = context.ranks()[position];
  straggler.kind = StragglerKind::kTransient;
  straggler.p_value = stretch.p_value;
  straggler.saves_ns = std::llround(mean);
  if (context.units_are_steps()) straggler.saves_ns_per_step = straggler.saves_ns;
  straggler.saves_interval_ns = {std::llround(low * share), std::llround(high * share)};
  return assessment;
}

}  // namespace lockstep::analysis
