#include "analysis/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep {
namespace {

template <typename T>
T LowerMedianOf(std::vector<T>& values) {
  if (values.empty()) return T{};
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

constexpr std::size_t kMinBlocks = 10;
// More blocks add no power worth their time.
constexpr std::size_t kMaxBlocks = 64;

}  // namespace

std::int64_t LowerMedian(std::vector<std::int64_t> values) { return LowerMedianOf(values); }
double LowerMedian(std::vector<double> values) { return LowerMedianOf(values); }

std::int64_t LowerQuantile(std::vector<std::int64_t> values, double p) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(p * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

std::uint64_t SeededRandom::Next() {
  std::uint64_t x = (state_ += 0x9e3779b97f4a7c15u);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::size_t BlockLength(const std::vector<std::vector<double>>& series) {
  double largest = 0;
  std::size_t n = 0;
  for (const std::vector<double>& values : series) {
    n = std::max(n, values.size());
    if (values.size() < 8) continue;
    // Ranks, not values: one outlier would hide the correlation of the rest.
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
    std::vector<double> rank(values.size());
    for (std::size_t i = 0; i < order.size(); ++i)
      rank[order[i]] = static_cast<double>(i) - 0.5 * static_cast<double>(order.size() - 1);
    double variance = 0, lagged = 0;
    for (std::size_t i = 0; i < rank.size(); ++i) {
      variance += rank[i] * rank[i];
      if (i > 0) lagged += rank[i] * rank[i - 1];
    }
    if (variance > 0) largest = std::max(largest, lagged / variance);
  }
  const double correlation = std::min(largest, 0.95);
  const double time = (1 + correlation) / (1 - correlation);
  const std::size_t most = std::max<std::size_t>(1, n / kMinBlocks);
  return std::clamp<std::size_t>(static_cast<std::size_t>(std::ceil(2 * time)), 1, most);
}

std::pair<double, double> BootstrapInterval(const std::vector<double>& values, std::size_t block, Statistic statistic,
                                            std::uint64_t seed, std::size_t rounds) {
  const std::size_t n = values.size();
  if (n == 0) return {0, 0};
  block = std::clamp<std::size_t>(block, 1, n);
  SeededRandom random(seed);
  std::vector<double> results;
  results.reserve(rounds);
  // The values never change, so they are ordered once: a resample is how often each
  // place of that order was drawn, and its median a walk over these counts.
  std::vector<std::uint32_t> by_value(n), place(n), drawn(n);
  std::iota(by_value.begin(), by_value.end(), 0u);
  std::stable_sort(by_value.begin(), by_value.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return values[a] < values[b]; });
  for (std::size_t i = 0; i < n; ++i) place[by_value[i]] = static_cast<std::uint32_t>(i);
  for (std::size_t round = 0; round < rounds; ++round) {
    std::fill(drawn.begin(), drawn.end(), 0u);
    double sum = 0;
    for (std::size_t filled = 0; filled < n;) {
      const std::size_t begin = random.Below(n - block + 1);
      const std::size_t end = begin + std::min(block, n - filled);
      for (std::size_t i = begin; i < end; ++i) {
        ++drawn[place[i]];
        sum += values[i];
      }
      filled += end - begin;
    }
    if (statistic == Statistic::kMedian) {
      std::size_t at = 0;
      for (std::size_t seen = drawn[0]; seen <= (n - 1) / 2; seen += drawn[at]) ++at;
      results.push_back(values[by_value[at]]);
    } else {
      results.push_back(sum / static_cast<double>(n));
    }
  }
  std::sort(results.begin(), results.end());
  const auto at = [&](double p) { return results[static_cast<std::size_t>(p * static_cast<double>(rounds - 1))]; };
  return {at(0.025), at(0.975)};
}

std::vector<double> LabelPermutationTest(const std::vector<std::vector<double>>& values, std::size_t block,
                                         std::uint64_t seed, std::size_t rounds, double interesting) {
  const std::size_t units = values.size(), subjects = units == 0 ? 0 : values[0].size();
  std::vector<double> p(subjects, 1.0);
  if (subjects < 2) return p;
  block = std::max({block, std::size_t{1}, (units + kMaxBlocks - 1) / kMaxBlocks});
  const std::size_t blocks = (units + block - 1) / block;

  // Sum of within-unit ranks per block and subject.
  std::vector<double> sums(blocks * subjects, 0.0);
  std::vector<std::size_t> order(subjects);
  for (std::size_t unit = 0; unit < units; ++unit) {
    const std::vector<double>& row = values[unit];
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return row[a] < row[b]; });
    for (std::size_t i = 0; i < subjects;) {
      std::size_t j = i;
      while (j < subjects && row[order[j]] == row[order[i]]) ++j;
      const double shared = 0.5 * static_cast<double>(i + j - 1);
      for (; i < j; ++i) sums[unit / block * subjects + order[i]] += shared;
    }
  }
  std::vector<double> observed(subjects, 0.0);
  for (std::size_t b = 0; b < blocks; ++b)
    for (std::size_t s = 0; s < subjects; ++s) observed[s] += sums[b * subjects + s];

  SeededRandom random(seed);
  std::vector<double> null(subjects);
  std::vector<std::size_t> reached(subjects, 0);
  // Whoever is largest is reached least often.
  const auto top = static_cast<std::size_t>(std::max_element(observed.begin(), observed.end()) - observed.begin());
  std::vector<std::uint32_t> label(subjects);
  for (std::size_t round = 0; round < rounds; ++round) {
    std::fill(null.begin(), null.end(), 0.0);
    for (std::size_t b = 0; b < blocks; ++b) {
      std::iota(label.begin(), label.end(), 0u);
      for (std::size_t s = subjects - 1; s > 0; --s) std::swap(label[s], label[random.Below(s + 1)]);
      for (std::size_t s = 0; s < subjects; ++s) null[s] += sums[b * subjects + label[s]];
    }
    const double largest = *std::max_element(null.begin(), null.end());
    // Sums of halves are exact in binary: no tolerance is needed.
    for (std::size_t s = 0; s < subjects; ++s) reached[s] += largest >= observed[s];
    if (static_cast<double>(1 + reached[top]) >= interesting * static_cast<double>(1 + rounds)) return p;
  }
  for (std::size_t s = 0; s < subjects; ++s)
    p[s] = static_cast<double>(1 + reached[s]) / static_cast<double>(1 + rounds);
  return p;
}

}  // namespace lockstep
