#include "merge/timeline/charged.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

namespace lockstep::merge {

IntervalSet ChargedTo(const Timeline& timeline, std::int32_t rank) {
  const auto& t = timeline.tables.collectives;
  std::vector<Interval> charged;
  for (std::size_t c = 0; c < t.rows(); ++c)
    if (t.last_rank[c] == rank && t.splits[c] != 0 && t.charge_ns[c] > 0)
      charged.push_back({t.last_arrival_ns[c] - t.charge_ns[c], t.last_arrival_ns[c]});
  return Normalize(std::move(charged));
}

bool Within(const IntervalSet& set, std::int64_t ns) {
  const auto after =
      std::upper_bound(set.begin(), set.end(), ns, [](std::int64_t t, const Interval& one) { return t < one.begin; });
  return after != set.begin() && ns < std::prev(after)->end;
}

}  // namespace lockstep::merge
