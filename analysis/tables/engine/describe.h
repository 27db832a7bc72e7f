#pragma once
// Computes what pandas calls describe(): the statistics with which HTA's tables describe a distribution.

#include <cstdint>
#include <vector>

#include "analysis/tables/engine/table.h"

namespace lockstep::tables {

struct Description {
  std::int64_t count = 0, total = 0, min = 0, max = 0;  // Of no values: all 0.
  double mean = 0, std = 0;                             // std: of a sample (n - 1); 0 for one value.
  double p25 = 0, p50 = 0, p75 = 0;                     // Interpolated linearly between neighbours.
};

// Standard deviation of a sample (n - 1); 0 for fewer than two values.
double SampleDeviation(const std::vector<std::int64_t>& values);

// Sets the pooled deviation of a column to that of both groups together, from their counts, totals and deviations
// (Chan, Golub and LeVeque, 1979). For TableKind::pool_row: count and total of `pooled` do not have the rank in them
// yet.
struct DeviationColumns {
  Column count, total, std;
};
void PoolDeviation(const TableRow& of_rank, bool first, const DeviationColumns& columns, TableRow& pooled);

// Reorders the values. Linear.
Description Describe(std::vector<std::int64_t>& values);

// Values that hold for a time: the least value that holds, or less, for at least
// `fraction` of all the time. Sorts.
struct Weighted {
  double value;
  std::int64_t ns;
};
double WeightedQuantile(std::vector<Weighted>& values, double fraction);

}  // namespace lockstep::tables
