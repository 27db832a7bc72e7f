#pragma once
// Rows of the text's table of collectives.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/core/model.h"

namespace lockstep::report {

// The row of one group, or of all groups of a size that do the same.
struct CollectiveLine {
  const analysis::CollectiveRow* row = nullptr;  // Any of them.
  std::int64_t groups = 0, count = 0, censored = 0, partial = 0, grouped = 0;
  std::optional<std::int64_t> transfer_ns, wait_ns;                // Lower medians of the groups' medians.
  std::optional<std::int64_t> longest_wait_ns, longest_wait_rank;  // The longest of the groups'.
  std::optional<double> bus_bandwidth;
};

// Sorted by cost for a rank. With more rows than `screen`, rows that differ only in the group become one line.
std::vector<CollectiveLine> CollectiveLines(const std::vector<analysis::CollectiveRow>& rows, std::size_t screen);

}  // namespace lockstep::report
