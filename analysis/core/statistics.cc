#include "analysis/core/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "analysis/rules/run.h"
#include "core/rules/common.h"
#include "merge/parallel.h"

namespace lockstep::analysis {
double MeanOf(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::vector<double> Weighted(const std::vector<std::int64_t>& values, const std::vector<double>& weights) {
  std::vector<double> weighted(values.begin(), values.end());
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i < weights.size(); ++i) weighted[i] *= weights[i] * static_cast<double>(values.size()) / all;
  return weighted;
}

std::optional<TwoGroups> FindTwoGroups(std::vector<std::int64_t> lengths_ns) {
  const std::size_t n = lengths_ns.size();
  if (n < rules::kScatter) return std::nullopt;
  std::sort(lengths_ns.begin(), lengths_ns.end());
  double all = 0, variance = 0, lower = 0, most = 0, lower_sum = 0;
  for (const std::int64_t ns : lengths_ns) all += static_cast<double>(ns);
  const double mean = all / static_cast<double>(n);
  for (const std::int64_t ns : lengths_ns) variance += std::pow(static_cast<double>(ns) - mean, 2);
  std::size_t at = 0;
  for (std::size_t k = 1; k < n; ++k) {
    lower += static_cast<double>(lengths_ns[k - 1]);
    const double below = static_cast<double>(k), above = static_cast<double>(n - k);
    const double explained =
        std::pow((all - lower) / above - lower / below, 2) * below * above / static_cast<double>(n);
    if (explained <= most || lengths_ns[k] == lengths_ns[k - 1]) continue;
    most = explained, at = k, lower_sum = lower;
  }
  if (at == 0 || most < rules::kTwoGroupsExplained * variance) return std::nullopt;
  const double longer = (all - lower_sum) / static_cast<double>(n - at), other = lower_sum / static_cast<double>(at);
  if (longer < rules::kTwoGroupsTimes * other ||
      static_cast<double>(n - at) * (longer - other) < rules::kNameShare * all)
    return std::nullopt;
  return TwoGroups{lengths_ns[at], n - at, static_cast<std::int64_t>(longer), static_cast<std::int64_t>(other)};
}

std::uint64_t SeededRandom::Next() {
  std::uint64_t x = (state_ += 0x9e3779b97f4a7c15u);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

namespace {

// Subtracts the means of both sides of the largest change of level, which causes most of a drifting rank's correlation.
void RemoveShift(std::vector<double>& values) {
  const std::size_t n = values.size();
  if (n < rules::kEnough) return;
  // Fewer on either side are outliers.
  const auto least = static_cast<std::size_t>(rules::kLittle * static_cast<double>(n));
  const double all = std::accumulate(values.begin(), values.end(), 0.0);
  double before = 0, best = 0, best_before = 0;
  std::size_t at = 0;
  for (std::size_t k = 1; k + least <= n; ++k) {
    before += values[k - 1];
    if (k < least) continue;
    const double first = before / static_cast<double>(k), second = (all - before) / static_cast<double>(n - k);
    const double explained = (first - second) * (first - second) * static_cast<double>(k) * static_cast<double>(n - k);
    if (explained > best) {
      best = explained;
      best_before = before;
      at = k;
    }
  }
  if (at == 0) return;
  for (std::size_t i = 0; i < n; ++i)
    values[i] -= i < at ? best_before / static_cast<double>(at) : (all - best_before) / static_cast<double>(n - at);
}

std::size_t Length(const std::vector<std::vector<double>>& series, void (*prepare)(std::vector<double>&),
                   unsigned jobs) {
  std::size_t n = 0;
  for (const std::vector<double>& values : series) n = std::max(n, values.size());
  std::vector<double> correlations(series.size(), 0.0);
  merge::ParallelFor(jobs, series.size(), [&](std::size_t which) {
    const std::vector<double>& values = series[which];
    if (values.size() < rules::kScatter) return;
    // Uses ranks instead of values, because one outlier would hide the correlation of the others.
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
    std::vector<double> rank(values.size());
    // Equal values share a rank, because their order of appearance would look like a trend.
    for (std::size_t i = 0, j = 0; i < order.size(); i = j) {
      while (j < order.size() && values[order[j]] == values[order[i]]) ++j;
      for (std::size_t k = i; k < j; ++k)
        rank[order[k]] = 0.5 * (static_cast<double>(i + j) - static_cast<double>(order.size()));
    }
    prepare(rank);
    double variance = 0, lagged = 0;
    for (std::size_t i = 0; i < rank.size(); ++i) {
      variance += rank[i] * rank[i];
      if (i > 0) lagged += rank[i] * rank[i - 1];
    }
    if (variance > 0) correlations[which] = lagged / variance;
  });
  double largest = 0;
  for (const double each : correlations) largest = std::max(largest, each);
  const double correlation = std::min(largest, rules::kAutocorrelationMost);
  const double time = (1 + correlation) / (1 - correlation);
  const std::size_t most = std::max<std::size_t>(1, n / rules::kBootstrapBlocks);
  return std::clamp<std::size_t>(static_cast<std::size_t>(std::ceil(rules::kBlockLengthTimes * time)), 1, most);
}

}  // namespace

std::size_t BlockLength(const std::vector<std::vector<double>>& series, unsigned jobs) {
  return Length(
      series, [](std::vector<double>&) {}, jobs);
}
std::size_t BlockLengthApartFromShift(const std::vector<std::vector<double>>& series, unsigned jobs) {
  return Length(series, RemoveShift, jobs);
}

namespace {

// The medians of the resamples, ascending.
std::vector<double> Bootstrap(const std::vector<double>& values, std::size_t block, Statistic statistic,
                              std::uint64_t seed, std::size_t rounds) {
  const std::size_t n = values.size();
  block = std::clamp<std::size_t>(block, 1, n);
  SeededRandom random(seed);
  std::vector<double> results;
  results.reserve(rounds);
  // The values never change, so they are sorted once: a resample counts how often each position of that order was
  // drawn, and its median is found by a walk over these counts.
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
  return results;
}

}  // namespace

double PairedTest(const std::vector<double>& differences, std::size_t block, std::uint64_t seed, std::size_t rounds) {
  if (differences.empty()) return 1;
  const std::vector<double> medians = Bootstrap(differences, block, Statistic::kMedian, seed, rounds);
  const auto below = std::upper_bound(medians.begin(), medians.end(), 0.0) - medians.begin();
  const auto above = medians.end() - std::lower_bound(medians.begin(), medians.end(), 0.0);
  return std::min(1.0, 2 * static_cast<double>(1 + std::min(below, above)) / static_cast<double>(1 + rounds));
}

std::pair<double, double> BootstrapInterval(const std::vector<double>& values, std::size_t block, Statistic statistic,
                                            std::uint64_t seed, std::size_t rounds) {
  if (values.empty()) return {0, 0};
  const std::vector<double> results = Bootstrap(values, block, statistic, seed, rounds);
  const auto at = [&](double p) { return results[static_cast<std::size_t>(p * static_cast<double>(rounds - 1))]; };
  return {at(0.025), at(0.975)};
}

namespace {

// Values summed over blocks of units, which the null hypothesis shuffles as a whole.
struct BlockSums {
  std::size_t units, subjects, block, blocks;
  std::vector<double> sums;  // [block x subjects + subject]

  BlockSums(const std::vector<std::vector<double>>& values, std::size_t least_block)
      : units(values.size()),
        subjects(values[0].size()),
        block(std::max(
            {least_block, std::size_t{1}, (units + rules::kPermutationBlocks - 1) / rules::kPermutationBlocks})),
        blocks((units + block - 1) / block),
        sums(blocks * subjects, 0.0) {}
  double& At(std::size_t unit, std::size_t subject) { return sums[unit / block * subjects + subject]; }
  // Subtracts the mean of the subjects, so that cells of a shorter last block can be compared.
  void Center(double mean) {
    for (std::size_t b = 0; b < blocks; ++b)
      for (std::size_t s = 0; s < subjects; ++s)
        sums[b * subjects + s] -= mean * static_cast<double>(std::min(block, units - b * block));
  }
};

// Per subject, the largest sum over the blocks from any of the first ones up to `last_begin` to the end, in standard
// errors.
void LargestFromBeginnings(const BlockSums& of, std::size_t last_begin, std::vector<double>& largest) {
  std::vector<double> running(of.subjects, 0.0);
  std::fill(largest.begin(), largest.end(), -std::numeric_limits<double>::infinity());
  for (std::size_t b = of.blocks; b-- > 0;) {
    for (std::size_t s = 0; s < of.subjects; ++s) running[s] += of.sums[b * of.subjects + s];
    if (b > last_begin) continue;
    const double scale = 1 / std::sqrt(static_cast<double>(of.units - b * of.block));
    for (std::size_t s = 0; s < of.subjects; ++s) largest[s] = std::max(largest[s], running[s] * scale);
  }
}

// An upper bound on the chance that in one shuffle some subject's statistic is at least a given one: Bennett's
// inequality for the sum of the blocks from each beginning on, which holds for draws without replacement as well
// (Hoeffding 1963, theorem 4), summed over subjects and beginnings.
class Chance {
 public:
  Chance(const BlockSums& cells, std::size_t last_begin) : cells_(cells), last_begin_(last_begin) {
    const auto count = static_cast<double>(cells.sums.size());
    mean_ = std::accumulate(cells.sums.begin(), cells.sums.end(), 0.0) / count;
    for (const double cell : cells.sums) {
      variance_ += (cell - mean_) * (cell - mean_) / count;
      most_ = std::max(most_, cell - mean_);
    }
  }
  double LogOf(double statistic) const {
    if (!(variance_ > 0) || !(most_ > 0)) return 0;
    double largest = -std::numeric_limits<double>::infinity();
    for (std::size_t b = 0; b <= last_begin_; ++b) {
      const auto blocks = static_cast<double>(cells_.blocks - b);
      const double sum = statistic * std::sqrt(static_cast<double>(cells_.units - b * cells_.block)) - blocks * mean_;
      if (!(sum > 0)) return 0;
      const double spread = blocks * variance_ / (most_ * most_), u = sum / most_ / spread;
      largest = std::max(largest, -spread * ((1 + u) * std::log1p(u) - u));
    }
    return largest + std::log(static_cast<double>(cells_.subjects) * static_cast<double>(last_begin_ + 1));
  }

 private:
  const BlockSums& cells_;
  const std::size_t last_begin_;
  double mean_ = 0, variance_ = 0, most_ = 0;
};

std::vector<double> FamilywiseP(BlockSums cells, std::size_t last_begin, std::uint64_t seed,
                                const PermutationOptions& options) {
  const std::size_t subjects = cells.subjects, rounds = options.rounds;
  std::vector<double> p(subjects, 1.0), observed(subjects), null(subjects);
  LargestFromBeginnings(cells, last_begin, observed);
  std::vector<std::size_t> open = options.asked;
  if (open.empty()) {
    open.resize(subjects);
    std::iota(open.begin(), open.end(), std::size_t{0});
  }
  const Chance chance(cells, last_begin);
  std::erase_if(open, [&](std::size_t s) {
    const double least = observed[s] - 2 * rules::kSumTolerance * std::max(1.0, std::abs(observed[s]));
    const bool never = chance.LogOf(least) + std::log(static_cast<double>(rounds)) < std::log(rules::kShuffleSkipOdds);
    if (never) p[s] = 1 / static_cast<double>(1 + rounds);
    return never;
  });
  if (open.empty()) return p;
  SeededRandom random(seed);
  std::vector<std::size_t> reached(subjects, 0);
  // The largest value is reached least often.
  const std::size_t top = *std::max_element(open.begin(), open.end(),
                                            [&](std::size_t a, std::size_t b) { return observed[a] < observed[b]; });
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t i = cells.sums.size() - 1; i > 0; --i) std::swap(cells.sums[i], cells.sums[random.Below(i + 1)]);
    LargestFromBeginnings(cells, last_begin, null);
    double largest = *std::max_element(null.begin(), null.end());
    largest += rules::kSumTolerance * std::max(1.0, std::abs(largest));
    for (const std::size_t s : open) reached[s] += largest >= observed[s];
    if (static_cast<double>(1 + reached[top]) >= options.interesting * static_cast<double>(1 + rounds)) return p;
  }
  for (const std::size_t s : open) p[s] = static_cast<double>(1 + reached[s]) / static_cast<double>(1 + rounds);
  return p;
}

std::vector<double> NoSubjectStandsOut(const std::vector<std::vector<double>>& values) {
  return std::vector<double>(values.empty() ? 0 : values[0].size(), 1.0);
}

}  // namespace

std::vector<double> ConsistencyTest(const std::vector<std::vector<double>>& values, std::size_t block,
                                    std::uint64_t seed, const PermutationOptions& options) {
  if (values.empty() || values[0].size() < 2) return NoSubjectStandsOut(values);
  BlockSums cells(values, block);
  const std::size_t subjects = cells.subjects;
  // A block is one thread's, which adds its units in order.
  merge::ParallelFor(options.jobs, cells.blocks, [&](std::size_t which) {
    std::vector<std::size_t> order(subjects);
    for (std::size_t unit = which * cells.block; unit < std::min(values.size(), (which + 1) * cells.block); ++unit) {
      const std::vector<double>& row = values[unit];
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return row[a] < row[b]; });
      for (std::size_t i = 0; i < subjects;) {
        std::size_t j = i;
        while (j < subjects && row[order[j]] == row[order[i]]) ++j;
        const double shared = 0.5 * static_cast<double>(i + j - 1);
        for (; i < j; ++i) cells.At(unit, order[i]) += shared;
      }
    }
  });
  cells.Center(0.5 * static_cast<double>(subjects - 1));
  // A rank that became slower in fewer blocks has not been so for long enough to show it.
  const auto much = static_cast<std::size_t>(std::ceil(rules::kMuch * static_cast<double>(cells.blocks)));
  const std::size_t tail = std::max(rules::kFewest, much);
  const std::size_t last_begin = cells.blocks - std::min(cells.blocks, tail);
  return FamilywiseP(std::move(cells), last_begin, seed, options);
}

std::vector<double> RareExcessTest(const std::vector<std::vector<double>>& values, std::size_t block,
                                   std::uint64_t seed, const PermutationOptions& options) {
  if (values.empty() || values[0].size() < 2) return NoSubjectStandsOut(values);
  BlockSums cells(values, block);
  for (std::size_t unit = 0; unit < values.size(); ++unit)
    for (std::size_t s = 0; s < cells.subjects; ++s) cells.At(unit, s) += values[unit][s];
  cells.Center(std::accumulate(cells.sums.begin(), cells.sums.end(), 0.0) /
               static_cast<double>(cells.units * cells.subjects));
  // Rare events have no beginning from which on they would be more frequent.
  return FamilywiseP(std::move(cells), 0, seed, options);
}

bool IsIntermittent(const std::vector<std::int64_t>& by_step, double worth) {
  const auto with = static_cast<std::size_t>(std::count_if(
      by_step.begin(), by_step.end(), [&](std::int64_t value) { return static_cast<double>(value) >= worth; }));
  return !MostOf(with, by_step.size()) && rules::kIntermittentOneIn * with >= by_step.size() && with >= 2;
}

double CommonChange(const std::vector<double>& changes) {
  if (changes.size() == 2) return std::fabs(changes[0]) < std::fabs(changes[1]) ? changes[0] : changes[1];
  return LowerMedian(changes);
}

}  // namespace lockstep::analysis
