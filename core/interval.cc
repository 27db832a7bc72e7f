#include "core/interval.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace lockstep {
namespace {

// Appends while keeping the set normal; `next.begin` must not be less than the last begin.
void Push(IntervalSet& set, Interval next) {
  if (next.end <= next.begin) return;
  if (!set.empty() && next.begin <= set.back().end)
    set.back().end = std::max(set.back().end, next.end);
  else
    set.push_back(next);
}

bool ByBegin(const Interval& a, const Interval& b) { return a.begin < b.begin; }

// Traces are sorted except for neighbours that overtook each other, or consist of a few sorted tables one after the
// other. Neighbours are inserted; an interval that begins far back starts a new run, and the runs are merged.
void SortByBegin(std::vector<Interval>& intervals) {
  constexpr std::size_t kNear = 16;
  std::vector<std::size_t> runs = {0};
  for (std::size_t i = 1; i < intervals.size(); ++i) {
    if (!ByBegin(intervals[i], intervals[i - 1])) continue;
    const std::size_t reach = i - runs.back() > kNear ? i - kNear : runs.back();
    std::size_t at = i - 1;
    while (at > reach && ByBegin(intervals[i], intervals[at - 1])) --at;
    if (at == reach && reach != runs.back()) {
      runs.push_back(i);
      continue;
    }
    std::rotate(intervals.begin() + static_cast<std::ptrdiff_t>(at), intervals.begin() + static_cast<std::ptrdiff_t>(i),
                intervals.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  if (runs.size() > intervals.size() / 8 + 1) {
    std::sort(intervals.begin(), intervals.end(), ByBegin);
    return;
  }
  runs.push_back(intervals.size());
  while (runs.size() > 2) {
    std::vector<std::size_t> merged = {0};
    for (std::size_t r = 1; r < runs.size(); r += 2) {
      const std::size_t end = r + 1 < runs.size() ? runs[r + 1] : runs[r];
      std::inplace_merge(intervals.begin() + static_cast<std::ptrdiff_t>(runs[r - 1]),
                         intervals.begin() + static_cast<std::ptrdiff_t>(runs[r]),
                         intervals.begin() + static_cast<std::ptrdiff_t>(end), ByBegin);
      merged.push_back(end);
    }
    runs = std::move(merged);
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
  while (i != a.end() || j != b.end()) Push(set, j == b.end() || (i != a.end() && i->begin <= j->begin) ? *i++ : *j++);
  return set;
}

IntervalSet Intersect(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet set;
  for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end();) {
    Push(set, {std::max(i->begin, j->begin), std::min(i->end, j->end)});
    if (i->end < j->end)
      ++i;
    else
      ++j;
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
