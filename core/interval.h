#pragma once
// Sets of half-open intervals [begin, end) in integer ns, and their algebra.
// A set is sorted, disjoint and has no empty or touching members; every function
// takes and gives such sets, in linear time.

#include <cstdint>
#include <vector>

namespace lockstep {

struct Interval {
  std::int64_t begin, end;
  friend bool operator==(const Interval&, const Interval&) = default;
};
using IntervalSet = std::vector<Interval>;

// Any intervals, in any order, empty ones dropped. Linear if already sorted by begin.
IntervalSet Normalize(std::vector<Interval> intervals);
IntervalSet Unite(const IntervalSet& a, const IntervalSet& b);
IntervalSet Intersect(const IntervalSet& a, const IntervalSet& b);
IntervalSet Subtract(const IntervalSet& a, const IntervalSet& b);
IntervalSet Clip(const IntervalSet& set, Interval window);
std::int64_t Total(const IntervalSet& set);
// |set and window|, without making the intersection. O(log n + members inside).
std::int64_t TotalWithin(const IntervalSet& set, Interval window);

}  // namespace lockstep
