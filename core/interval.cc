#include "core/interval.h"

#include <algorithm>

namespace lockstep {
namespace {

// Appends keeping the set normal; `next.begin` must not lie before the last begin.
void Push(IntervalSet& set, Interval next) {
  if (next.end <= next.begin) return;
  if (!set.empty() && next.begin <= set.back().end)
    set.back().end = std::max(set.back().end, next.end);
  else
    set.push_back(next);
}

bool ByBegin(const Interval& a, const Interval& b) { return a.begin < b.begin; }

// Traces are sorted but for neighbours that overtook each other: insertion costs
// what is out of order, and gives up on input that is not like that.
void SortByBegin(std::vector<Interval>& intervals) {
  std::size_t moves_left = 4 * intervals.size();
  for (std::size_t i = 1; i < intervals.size(); ++i) {
    if (!ByBegin(intervals[i], intervals[i - 1])) continue;
    const Interval late = intervals[i];
    std::size_t at = i;
    for (; at > 0 && moves_left > 0 && ByBegin(late, intervals[at - 1]); --at, --moves_left)
      intervals[at] = intervals[at - 1];
    intervals[at] = late;
    if (moves_left == 0) {
      std::sort(intervals.begin(), intervals.end(), ByBegin);
      return;
    }
  }
}

}  // namespace

IntervalSet Normalize(std::vector<Interval> intervals) {
  SortByBegin(intervals);
  IntervalSet set;
  set.reserve(intervals.size());
  for (const Interval& interval : intervals) Push(set, interval);
  return set;
}

IntervalSet Unite(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet set;
  set.reserve(a.size() + b.size());
  auto i = a.begin(), j = b.begin();
  while (i != a.end() || j != b.end())
    Push(set, j == b.end() || (i != a.end() && i->begin <= j->begin) ? *i++ : *j++);
  return set;
}

IntervalSet Intersect(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet set;
  for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end();) {
    Push(set, {std::max(i->begin, j->begin), std::min(i->end, j->end)});
    if (i->end < j->end) ++i; else ++j;
  }
  return set;
}

IntervalSet Subtract(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet set;
  auto j = b.begin();
  for (Interval rest : a) {
    while (j != b.end() && j->end <= rest.begin) ++j;
    for (auto k = j; k != b.end() && k->begin < rest.end; ++k) {
      Push(set, {rest.begin, std::min(k->begin, rest.end)});
      rest.begin = std::max(rest.begin, k->end);
    }
    if (rest.begin < rest.end) set.push_back(rest);
  }
  return set;
}

IntervalSet Clip(const IntervalSet& set, Interval window) { return Intersect(set, {window}); }

std::int64_t Total(const IntervalSet& set) {
  std::int64_t total = 0;
  for (const Interval& interval : set) total += interval.end - interval.begin;
  return total;
}

std::int64_t TotalWithin(const IntervalSet& set, Interval window) {
  auto i = std::lower_bound(set.begin(), set.end(), window.begin,
                            [](const Interval& member, std::int64_t at) { return member.end <= at; });
  std::int64_t total = 0;
  for (; i != set.end() && i->begin < window.end; ++i)
    total += std::min(i->end, window.end) - std::max(i->begin, window.begin);
  return total;
}

}  // namespace lockstep
