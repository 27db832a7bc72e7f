#include "core/interval.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lockstep
