#pragma once
// Finds a rank that is late in one stretch of the run only: from one step to another, and neither before nor after.

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/stragglers/straggler_price.h"

namespace lockstep::analysis {

struct LateStretch {
  std::size_t first_unit = 0, last_unit = 0;
  std::size_t late = 0;  // The number of its units in which the rank is the latest of all and late enough to be named.
  double p_value = 1;    // The probability that by chance any rank is the latest so often in any stretch.
};

// The stretch in which the rank at `position` is late, if it exceeds the noise of all ranks: at least five units, four
// of five of them late, few outside. `limit_ns`: the least lateness that is worth naming.
std::optional<LateStretch> LateStretchOf(const LatenessTable& late, std::size_t position, double limit_ns);

// Its kind and its price, the mean over all units, if the rank is to be named; `price`: what it costs by unit.
std::optional<Assessment> AssessStretch(const Context& context, const LateStretch& stretch,
                                        const std::vector<std::int64_t>& price, std::size_t position, double limit_ns);

}  // namespace lockstep::analysis
