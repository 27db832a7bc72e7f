#include <algorithm>

#include "analysis/replay/gpu/gpu_raw.h"
#include "analysis/rules/replay.h"
#include "core/rules/common.h"

namespace lockstep::replay {

std::vector<HandOver> FindHandOvers(const std::vector<IntervalSet>& activity) {
  std::vector<HandOver> found;
  for (std::uint32_t to = 0; to < activity.size(); ++to) {
    // A thread also waited before its first activity.
    for (std::size_t k = 0; k < activity[to].size(); ++k) {
      const std::int64_t stopped = k == 0 ? INT64_MIN : activity[to][k - 1].end, resumed = activity[to][k].begin;
      if (k > 0 && resumed - stopped < rules::kHandOverPauseNs) continue;
      HandOver best{0, to, 0, resumed, stopped};
      std::int64_t longest = 0;
      for (std::uint32_t from = 0; from < activity.size(); ++from) {
        if (from == to) continue;
        const IntervalSet& other = activity[from];
        const auto first = std::lower_bound(other.begin(), other.end(), stopped,
                                            [](const Interval& each, std::int64_t ns) { return each.begin < ns; });
        auto last = std::upper_bound(other.begin(), other.end(), resumed,
                                     [](std::int64_t ns, const Interval& each) { return ns < each.end; });
        if (last <= first) continue;
        --last;
        const std::int64_t span = last->end - first->begin;
        if (span <= longest) continue;
        longest = span;
        best.from = from;
        best.give_ns = last->end;
      }
      if (longest == 0 || (k > 0 && !HalfOf(longest, resumed - stopped))) continue;
      found.push_back(best);
    }
  }
  return found;
}

}  // namespace lockstep::replay
