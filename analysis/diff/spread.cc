#include "analysis/diff/spread.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "analysis/core/student.h"

namespace lockstep::diff {
namespace {

using analysis::Statistic;

constexpr std::size_t kRounds = 400;
// Longer series are reduced to the means (medians) of so many stretches: order and slow changes are kept, and the cost
// does not grow with the run.
constexpr std::size_t kMostValues = 512;
constexpr std::size_t kCoarseBlocks = 6;
// Below the first, neighbours count as independent; a memory beyond the second cannot be distinguished from a trend.
constexpr double kLeastLikeness = 0.25, kMostMemory = 0.98, kLeastSeen = 0.1;

// Student's t at 97.5 %, over the normal quantile. Each is worked out once: there are as many series as ranks and more.
double StudentOverNormal(std::size_t freedom) {
  thread_local std::array<double, kMostValues + 1> known{};
  double& t = known[std::clamp<std::size_t>(freedom, 1, kMostValues)];
  if (t == 0) t = analysis::StudentQuantile(0.025, std::clamp<std::size_t>(freedom, 1, kMostValues));
  return t / 1.96;
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
  // With fewer values the likeness is mostly chance, and its correction is larger than the value itself.
  constexpr std::size_t kLeastValues = 20;
  if (n < kLeastValues) return 0;
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
  const auto corrected = [&](double rho) { return std::min((count * rho + 1) / (count - 4), kMostMemory); };
  const double rho = corrected(first / variance);
  if (rho < kLeastLikeness) return 0;
  const double memory = std::clamp(corrected(second / variance) / rho, rho, kMostMemory);
  const double time = std::min(1 + 2 * rho / (1 - memory), count);
  std::vector<double> deviations;
  for (const double value : values) deviations.push_back(std::fabs(value - center));
  // The share of its variance that a series of this length does not show.
  const double unseen = std::max(1 - time / count, kLeastSeen);
  const double sigma = 1.4826 * LowerMedian(std::move(deviations)) / std::sqrt(unseen);
  const auto independent = static_cast<std::size_t>(std::max(2.0, count / time));
  const double of_statistic = statistic == Statistic::kMean ? 1 : 1.2533;
  return 1.96 * StudentOverNormal(independent - 1) * of_statistic * sigma * std::sqrt(time / count);
}

std::vector<double> Shortened(const std::vector<double>& series, Statistic statistic) {
  if (series.size() <= kMostValues) return series;
  std::vector<double> centers;
  for (std::size_t i = 0; i < kMostValues; ++i)
    centers.push_back(CenterOf(
        std::vector<double>(series.begin() + static_cast<std::ptrdiff_t>(i * series.size() / kMostValues),
                            series.begin() + static_cast<std::ptrdiff_t>((i + 1) * series.size() / kMostValues)),
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
  const std::size_t coarse = std::max<std::size_t>(1, values.size() / kCoarseBlocks);
  double below = HalfOfCorrelated(values, center, statistic), above = below;
  for (const std::size_t block : {fine, coarse}) {
    const auto [low, high] = analysis::BootstrapInterval(values, block, statistic, 1, kRounds);
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
