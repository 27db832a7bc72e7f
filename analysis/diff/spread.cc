#include "analysis/diff/spread.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "analysis/core/student.h"
#include "analysis/rules/diff.h"
#include "analysis/rules/run.h"
#include "core/rules/common.h"

namespace lockstep::diff {
namespace {

using analysis::Statistic;

// Student's t at 97.5 %, over the normal quantile. Each is worked out once: there are as many series as ranks and more.
double StudentOverNormal(std::size_t freedom) {
  thread_local std::array<double, rules::kSpreadValues + 1> known{};
  double& t = known[std::clamp<std::size_t>(freedom, 1, rules::kSpreadValues)];
  if (t == 0)
    t = analysis::StudentQuantile(rules::kSpreadTail95, std::clamp<std::size_t>(freedom, 1, rules::kSpreadValues));
  return t / rules::kSpreadNormal95;
}

// How much wider an interval from so few blocks must be.
double Widening(std::size_t blocks) {
  const auto n = static_cast<double>(std::max<std::size_t>(blocks, 2));
  return StudentOverNormal(std::max<std::size_t>(blocks, 2) - 1) * std::sqrt(n / (n - 1));
}

double CenterOf(const std::vector<double>& values, Statistic statistic) {
  return statistic == Statistic::kMean ? analysis::MeanOf(values) : LowerMedian(values);
}

// The precision of the mean or median of values that resemble their neighbours: as a first-order autoregressive series
// with added noise (ARMA(1,1)), whose memory is fitted to lags 1 and 2. Resampling cannot show variation that a series
// shorter than its own memory does not contain; this estimate can, if roughly. Returns half of the 95 % interval, 0 if
// neighbours are not alike.
double HalfOfCorrelated(const std::vector<double>& values, double center, Statistic statistic) {
  const std::size_t n = values.size();
  if (n < rules::kEnough) return 0;
  // Uses ranks instead of values, because one outlier would hide the likeness of the others.
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> place(n);
  for (std::size_t i = 0; i < n; ++i) place[order[i]] = static_cast<double>(i) - static_cast<double>(n - 1) / 2;
  double variance = 0, first = 0, second = 0;
  for (std::size_t i = 0; i < n; ++i) {
    variance += place[i] * place[i];
    if (i > 0) first += place[i] * place[i - 1];
    if (i > 1) second += place[i] * place[i - 2];
  }
  const auto count = static_cast<double>(n);
  // In a series around its own mean the correlations come out too small by about (1 + 4 rho) / n (Kendall, Biometrika
  // 41, 1954).
  const auto corrected = [&](double rho) {
    return std::min((count * rho + 1) / (count - 4), rules::kSpreadMostMemory);
  };
  const double rho = corrected(first / variance);
  if (rho < rules::kSpreadLeastLikeness) return 0;
  const double memory = std::clamp(corrected(second / variance) / rho, rho, rules::kSpreadMostMemory);
  const double time = std::min(1 + 2 * rho / (1 - memory), count);
  std::vector<double> deviations;
  for (const double value : values) deviations.push_back(std::fabs(value - center));
  // The share of its variance that a series of this length does not show.
  const double unseen = std::max(1 - time / count, rules::kLittle);
  const double sigma = rules::kMadToSigma * LowerMedian(std::move(deviations)) / std::sqrt(unseen);
  const auto independent = static_cast<std::size_t>(std::max(2.0, count / time));
  const double of_statistic = statistic == Statistic::kMean ? 1 : rules::kSpreadMedianError;
  return rules::kSpreadNormal95 * StudentOverNormal(independent - 1) * of_statistic * sigma * std::sqrt(time / count);
}

std::vector<double> Shortened(const std::vector<double>& series, Statistic statistic) {
  if (series.size() <= rules::kSpreadValues) return series;
  std::vector<double> centers;
  for (std::size_t i = 0; i < rules::kSpreadValues; ++i)
    centers.push_back(
        CenterOf(std::vector<double>(
                     series.begin() + static_cast<std::ptrdiff_t>(i * series.size() / rules::kSpreadValues),
                     series.begin() + static_cast<std::ptrdiff_t>((i + 1) * series.size() / rules::kSpreadValues)),
                 statistic));
  return centers;
}

}  // namespace

Spread SpreadOf(const std::vector<double>& series, Statistic statistic) {
  Spread spread;
  spread.count = static_cast<std::int64_t>(series.size());
  if (series.empty()) return spread;
  spread.center = spread.low = spread.high = series.front();
  if (std::all_of(series.begin(), series.end(), [&](double value) { return value == spread.center; })) return spread;
  spread.center = CenterOf(series, statistic);
  const std::vector<double> values = Shortened(series, statistic);
  const double center = CenterOf(values, statistic);
  const std::size_t fine = analysis::BlockLength({values});
  const std::size_t coarse = std::max<std::size_t>(1, values.size() / rules::kSpreadCoarseBlocks);
  double below = HalfOfCorrelated(values, center, statistic), above = below;
  for (const std::size_t block : {fine, coarse}) {
    const auto [low, high] =
        analysis::BootstrapInterval(values, block, statistic, rules::kSpreadSeed, rules::kSpreadRounds);
    const double wide = Widening(values.size() / block);
    below = std::max(below, wide * (center - low));
    above = std::max(above, wide * (high - center));
  }
  spread.low = spread.center - below;
  spread.high = spread.center + above;
  return spread;
}

Difference DifferenceOf(const Spread& base, const Spread& now, double widen) {
  Difference difference;
  difference.value = now.center - base.center;
  difference.low = difference.value - widen * std::hypot(now.center - now.low, base.high - base.center);
  difference.high = difference.value + widen * std::hypot(now.high - now.center, base.center - base.low);
  return difference;
}

Difference DifferenceOfFew(const Spread& base, const Spread& now, double widen) {
  const auto half = [](const Spread& spread) {
    return std::max(spread.center - spread.low, spread.high - spread.center);
  };
  const double value = now.center - base.center, wide = widen * std::hypot(half(base), half(now));
  return {value, value - wide, value + wide};
}

}  // namespace lockstep::diff
