#include "analysis/tables/engine/describe.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/tables/engine/cells.h"

namespace lockstep::tables {
namespace {

double Quantile(std::vector<std::int64_t>& values, std::size_t from, double fraction) {
  const double at = fraction * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(from);
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(below);
  std::nth_element(begin, nth, values.end());
  const auto low = static_cast<double>(*nth);
  if (at == static_cast<double>(below)) return low;
  const auto high = static_cast<double>(*std::min_element(nth + 1, values.end()));
  return low + (high - low) * (at - static_cast<double>(below));
}

}  // namespace

double SampleDeviation(const std::vector<std::int64_t>& values) {
  if (values.size() < 2) return 0;
  const auto n = static_cast<double>(values.size());
  const double mean = static_cast<double>(std::accumulate(values.begin(), values.end(), std::int64_t{0})) / n;
  double squares = 0;
  for (const std::int64_t value : values) {
    const double off = static_cast<double>(value) - mean;
    squares += off * off;
  }
  return std::sqrt(squares / (n - 1));
}

void PoolDeviation(const TableRow& of_rank, bool first, const DeviationColumns& columns, TableRow& pooled) {
  const auto n = static_cast<double>(IntOf(of_rank[columns.count])),
             had = static_cast<double>(first ? 0 : IntOf(pooled[columns.count]));
  if (n + had < 2) return;
  const double s = RealOf(of_rank[columns.std]), had_s = first ? 0 : RealOf(pooled[columns.std]);
  const double apart = n > 0 && had > 0 ? static_cast<double>(IntOf(of_rank[columns.total])) / n -
                                              static_cast<double>(IntOf(pooled[columns.total])) / had
                                        : 0;
  const double squares =
      s * s * std::max(n - 1, 0.0) + had_s * had_s * std::max(had - 1, 0.0) + apart * apart * n * had / (n + had);
  pooled[columns.std] = std::sqrt(squares / (n + had - 1));
}

Description Describe(std::vector<std::int64_t>& values) {
  Description d;
  if (values.empty()) return d;
  d.count = static_cast<std::int64_t>(values.size());
  d.total = std::accumulate(values.begin(), values.end(), std::int64_t{0});
  d.mean = static_cast<double>(d.total) / static_cast<double>(d.count);
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  d.min = *least;
  d.max = *most;
  d.std = SampleDeviation(values);
  // Elements that nth_element put before the last position are not searched again.
  const std::size_t n = values.size() - 1;
  d.p25 = Quantile(values, 0, 0.25);
  d.p50 = Quantile(values, n / 4, 0.5);
  d.p75 = Quantile(values, n / 2, 0.75);
  return d;
}

double WeightedQuantile(std::vector<Weighted>& values, double fraction) {
  std::sort(values.begin(), values.end(), [](const Weighted& a, const Weighted& b) { return a.value < b.value; });
  std::int64_t all = 0, so_far = 0;
  for (const Weighted& value : values) all += value.ns;
  for (const Weighted& value : values) {
    so_far += value.ns;
    if (so_far > 0 && static_cast<double>(so_far) >= fraction * static_cast<double>(all)) return value.value;
  }
  return values.empty() ? 0 : values.back().value;
}

}  // namespace lockstep::tables
