#include "core/interval.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <random>

namespace lockstep {
namespace {

constexpr int kUniverse = 64;
using Bits = std::bitset<kUniverse>;

Bits ToBits(const IntervalSet& set) {
  Bits bits;
  for (const Interval& i : set)
    for (auto t = i.begin; t < i.end; ++t) bits.set(static_cast<std::size_t>(t));
  return bits;
}

bool IsNormal(const IntervalSet& set) {
  for (std::size_t i = 0; i < set.size(); ++i) {
    if (set[i].end <= set[i].begin) return false;
    if (i > 0 && set[i].begin <= set[i - 1].end) return false;
  }
  return true;
}

// Every operation against the same one on bit sets, over random sets.
TEST(Interval, AlgebraEqualsBitSets) {
  std::mt19937 random(7);
  auto set = [&] {
    std::vector<Interval> raw;
    for (unsigned n = random() % 8; n > 0; --n) {
      const auto begin = static_cast<std::int64_t>(random() % kUniverse);
      raw.push_back({begin, std::min<std::int64_t>(kUniverse, begin + static_cast<std::int64_t>(random() % 12))});
    }
    return Normalize(raw);
  };
  for (int round = 0; round < 20000; ++round) {
    const IntervalSet a = set(), b = set();
    ASSERT_TRUE(IsNormal(a));
    const IntervalSet both = Unite(a, b), common = Intersect(a, b), rest = Subtract(a, b);
    ASSERT_TRUE(IsNormal(both) && IsNormal(common) && IsNormal(rest));
    ASSERT_EQ(ToBits(both), ToBits(a) | ToBits(b));
    ASSERT_EQ(ToBits(common), ToBits(a) & ToBits(b));
    ASSERT_EQ(ToBits(rest), ToBits(a) & ~ToBits(b));
    ASSERT_EQ(Total(a), static_cast<std::int64_t>(ToBits(a).count()));
    const auto begin = static_cast<std::int64_t>(random() % kUniverse);
    const Interval window{begin, begin + static_cast<std::int64_t>(random() % 20)};
    ASSERT_EQ(TotalWithin(a, window), Total(Clip(a, window)));
  }
}

// Orders that traces come in: sorted, overtaken neighbours, tables one after the other, far outliers, none.
TEST(Interval, NormalizeSortsEveryOrder) {
  std::mt19937 random(3);
  for (int order = 0; order < 6; ++order) {
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{17}, std::size_t{1000}}) {
      std::vector<Interval> intervals;
      for (std::size_t i = 0; i < n; ++i) {
        auto begin = static_cast<std::int64_t>(10 * i);
        if (order == 1) begin += static_cast<std::int64_t>(random() % 40);
        if (order == 2) begin = static_cast<std::int64_t>(10 * (i % (n / 3 + 1)) + i / 100);
        if (order == 3 && i % 50 == 49) begin = static_cast<std::int64_t>(random() % (10 * n));
        if (order == 4) begin = static_cast<std::int64_t>(random() % (10 * n));
        if (order == 5) begin = static_cast<std::int64_t>(10 * (n - i));
        intervals.push_back({begin, begin + static_cast<std::int64_t>(random() % 12)});
      }
      std::vector<bool> covered(20 * n + 100);
      for (const Interval& interval : intervals)
        for (auto t = interval.begin; t < interval.end; ++t) covered[static_cast<std::size_t>(t)] = true;
      const IntervalSet set = Normalize(intervals);
      ASSERT_TRUE(IsNormal(set)) << order << " " << n;
      for (const Interval& interval : set)
        for (auto t = interval.begin; t < interval.end; ++t) {
          ASSERT_TRUE(covered[static_cast<std::size_t>(t)]);
          covered[static_cast<std::size_t>(t)] = false;
        }
      ASSERT_EQ(std::count(covered.begin(), covered.end(), true), 0) << order << " " << n;
    }
  }
}

}  // namespace
}  // namespace lockstep
