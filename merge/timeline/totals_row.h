#pragma once
// Finds a rank's row of rank_totals.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/schema.h"

namespace lockstep::merge {

// totals.rows() if it has none.
inline std::size_t TotalsRow(const schema::TlRankTotals& totals, std::int32_t rank) {
  return static_cast<std::size_t>(std::find(totals.rank.begin(), totals.rank.end(), rank) - totals.rank.begin());
}

}  // namespace lockstep::merge
