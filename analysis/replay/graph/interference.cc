#include "analysis/replay/graph/interference.h"

#include <algorithm>

namespace lockstep::replay {

std::vector<std::int64_t> NsByCount(const std::vector<const IntervalSet*>& sets, Interval window) {
  std::vector<std::int64_t> by_count(sets.size() + 1, 0);
  if (window.end <= window.begin) return by_count;    // Damaged recordings have transfers that end before they begin.
  std::vector<std::pair<std::int64_t, int>> changes;  // Changes of the count.
  for (const IntervalSet* set : sets) {
    auto at = std::upper_bound(set->begin(), set->end(), window.begin,
                               [](std::int64_t ns, const Interval& each) { return ns < each.end; });
    for (; at != set->end() && at->begin < window.end; ++at) {
      changes.emplace_back(std::max(at->begin, window.begin), 1);
      changes.emplace_back(std::min(at->end, window.end), -1);
    }
  }
  std::sort(changes.begin(), changes.end());
  std::int64_t now = window.begin;
  std::size_t count = 0;
  for (const auto& [ns, change] : changes) {
    by_count[count] += ns - now;
    now = ns;
    count += static_cast<std::size_t>(change);
  }
  by_count[0] += window.end - now;
  return by_count;
}

std::pair<double, double> Middle95(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return {values[n / 40], values[n - 1 - n / 40]};
}

}  // namespace lockstep::replay
