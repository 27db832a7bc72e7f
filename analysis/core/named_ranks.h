#pragma once
// Which ranks a reader looks for: those that an analysis names.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "analysis/core/model.h"

namespace lockstep::analysis {

// The ranks that are stragglers, ascending.
inline std::vector<std::int32_t> StragglerRanks(const Analysis& analysis) {
  std::vector<std::int32_t> ranks;
  for (const Straggler& straggler : analysis.stragglers) ranks.push_back(straggler.rank);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// The ranks that the stragglers and the findings name, each once, in that order.
inline std::vector<std::int32_t> RanksOfFindings(const Analysis& analysis) {
  std::vector<std::int32_t> named;
  const auto add = [&](std::int32_t rank) {
    if (rank >= 0 && std::find(named.begin(), named.end(), rank) == named.end()) named.push_back(rank);
  };
  for (const Straggler& straggler : analysis.stragglers) add(straggler.rank);
  for (const Finding& finding : analysis.findings) add(finding.rank);
  return named;
}

// Indices into `rows` in the order in which ranks are shown where there is no room for all: those of `named`, then the
// latest (late_ns_median; not known: 0), of equally late ones those that compute longest in the step that the summary
// shows, or in the window if they lack it. Equal ones stay in their order.
inline std::vector<std::size_t> WorstFirst(const std::vector<RankRow>& rows, std::vector<std::int32_t> named) {
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto late = [&](std::size_t i) { return rows[i].late_ns_median.value_or(0); };
  const auto compute = [&](std::size_t i) {
    return (rows[i].step_terms ? *rows[i].step_terms : rows[i].terms).compute_ns;
  };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) {
    return late(x) != late(y) ? late(x) > late(y) : compute(x) > compute(y);
  });
  std::sort(named.begin(), named.end());
  std::stable_partition(order.begin(), order.end(),
                        [&](std::size_t i) { return std::binary_search(named.begin(), named.end(), rows[i].rank); });
  return order;
}

}  // namespace lockstep::analysis
