#pragma once
// The common part of the estimates of interference on CPU and on GPU ranks.

#include <cstdint>
#include <utility>
#include <vector>

#include "core/interval.h"

namespace lockstep::replay {

// The time of `window` covered by exactly k of the sets: [k], sets.size() + 1 of them.
std::vector<std::int64_t> NsByCount(const std::vector<const IntervalSet*>& sets, Interval window);

// The bounds of the middle 95 % of the values. Requires at least one value.
std::pair<double, double> Middle95(std::vector<double> values);

}  // namespace lockstep::replay
