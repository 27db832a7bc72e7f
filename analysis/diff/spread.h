#pragma once
// A mean (or median) over steps, its precision within one run, and the difference between two of them.

#include <cstdint>
#include <vector>

#include "analysis/core/statistics.h"

namespace lockstep::diff {

// Mean (of counts and times by name: lower median, since some of these are in some steps only) of a series with its 95
// % interval. Small enough to be kept in a baseline, and all that a comparison needs: two runs are compared from their
// spreads alone.
struct Spread {
  double center = 0, low = 0, high = 0;
  std::int64_t count = 0;  // The number of values; 0: nothing is known.
};

// `series` in the order of its steps. Moving-block bootstrap with two lengths of block: the series'
// autocorrelation time, and a sixth of the series, which sees drifts and levels that last for much of a run; the wider
// interval counts. Both are widened by Student's t for the number of blocks, as few blocks tell their own
// spread badly. Where steps resemble their neighbours the interval is at least that of a series with such a memory.
Spread SpreadOf(const std::vector<double>& series, analysis::Statistic statistic = analysis::Statistic::kMean);

struct Difference {
  double value = 0, low = 0, high = 0;  // new - base.
};
// The difference of two independent ones, from their intervals (Zou and Donner, Statistics in Medicine 27, 2008);
// each side of the interval is `widen` times as long.
Difference DifferenceOf(const Spread& base, const Spread& now, double widen = 1);

// The same of few values, which may all be on one side of the true one: the wider half of each interval is used for
// both sides.
Difference DifferenceOfFew(const Spread& base, const Spread& now, double widen);

}  // namespace lockstep::diff
