#pragma once
// What the estimates of interference on CPU and on GPU ranks have in common.

#include <cstdint>
#include <utility>
#include <vector>

#include "core/interval.h"

namespace lockstep::replay {

// For how much of `window` exactly k of the sets cover the time: [k], sets.size() + 1 of them.
std::vector<std::int64_t> NsByCount(const std::vector<const IntervalSet*>& sets, Interval window);

// What the middle 95 % of the values lie between. Not for none.
std::pair<double, double> Middle95(std::vector<double> values);

}  // namespace lockstep::replay
