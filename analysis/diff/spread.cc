#include "analysis/diff/spread.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/statistics.h"

namespace lockstep::diff {
namespace {

constexpr std::size_t kRounds = 400;
// Longer series are told by the medians of so many stretches: their order and slow changes stay, the cost does not
// grow with the run.
constexpr std::size_t kMostValues = 512;
constexpr std::size_t kCoarseBlocks = 6;

// Student's t at 97.5 %, over the normal quantile, for few degrees of freedom.
double Widening(std::size_t blocks) {
  static constexpr std::array<double, 31> kT = {
      0,     12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
      2.120, 2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  if (blocks < 2) return kT[1];
  const std::size_t freedom = blocks - 1;
  const double t = freedom < kT.size() ? kT[freedom] : 1.96 + 2.46 / static_cast<double>(freedom);
  const auto n = static_cast<double>(blocks);
  return t / 1.96 * std::sqrt(n / (n - 1));
}

std::vector<double> Shortened(const std::vector<double>& series) {
  if (series.size() <= kMostValues) return series;
  std::vector<double> medians;
  for (std::size_t i = 0; i < kMostValues; ++i)
    medians.push_back(LowerMedian(
        std::vector<double>(series.begin() + static_cast<std::ptrdiff_t>(i * series.size() / kMostValues),
                            series.begin() + static_cast<std::ptrdiff_t>((i + 1) * series.size() / kMostValues))));
  return medians;
}

}  // namespace

Spread SpreadOf(const std::vector<double>& series) {
  Spread spread;
  spread.count = static_cast<std::int64_t>(series.size());
  if (series.empty()) return spread;
  spread.median = spread.low = spread.high = LowerMedian(series);
  const std::vector<double> values = Shortened(series);
  const double center = values.size() == series.size() ? spread.median : LowerMedian(values);
  const std::size_t fine = BlockLength({values});
  const std::size_t coarse = std::max<std::size_t>(1, values.size() / kCoarseBlocks);
  double below = 0, above = 0;
  for (const std::size_t block : {fine, coarse}) {
    const auto [low, high] = BootstrapInterval(values, block, Statistic::kMedian, 1, kRounds);
    const double wide = Widening(values.size() / block);
    below = std::max(below, wide * (center - low));
    above = std::max(above, wide * (high - center));
  }
  spread.low = spread.median - below;
  spread.high = spread.median + above;
  return spread;
}

Difference DifferenceOf(const Spread& base, const Spread& now, double widen) {
  Difference difference;
  difference.value = now.median - base.median;
  difference.low = difference.value - widen * std::hypot(now.median - now.low, base.high - base.median);
  difference.high = difference.value + widen * std::hypot(now.high - now.median, base.median - base.low);
  return difference;
}

}  // namespace lockstep::diff
