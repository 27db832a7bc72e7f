#include "analysis/run/listed_cells.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "analysis/core/named_ranks.h"
#include "analysis/rules/run.h"

namespace lockstep::analysis {

std::vector<std::size_t> ListedSteps(const std::vector<std::int64_t>& lengths_ns, std::optional<std::size_t> always,
                                     std::size_t most) {
  std::vector<std::size_t> order(lengths_ns.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (order.size() <= most) return order;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return lengths_ns[a] > lengths_ns[b]; });
  std::vector<bool> listed(order.size());
  std::size_t count = 0;
  const auto list = [&](std::size_t step) {
    count += !listed[step];
    listed[step] = true;
  };
  if (always && *always < order.size()) list(*always);
  for (std::size_t i = 0; i < most / rules::kLongestStepsOneIn; ++i) list(order[i]);
  std::vector<std::size_t> others;
  for (std::size_t step = 0; step < order.size(); ++step)
    if (!listed[step]) others.push_back(step);
  if (const std::size_t room = most - std::min(most, count); room > 0)
    for (std::size_t i = 0, k = (others.size() + room - 1) / room; i < others.size(); i += k) list(others[i]);
  std::vector<std::size_t> steps;
  for (std::size_t step = 0; step < listed.size(); ++step)
    if (listed[step]) steps.push_back(step);
  return steps;
}

std::vector<std::int32_t> ListedRanks(const std::map<std::int32_t, std::size_t>& cells_of, const Analysis& analysis,
                                      std::size_t most, std::size_t most_named) {
  std::size_t all = 0;
  for (const auto& [rank, cells] : cells_of) all += cells;
  std::set<std::int32_t> chosen;
  if (all <= most) {
    for (const auto& [rank, cells] : cells_of) chosen.insert(rank);
    return {chosen.begin(), chosen.end()};
  }
  const std::vector<std::int32_t> named = RanksOfFindings(analysis);
  std::vector<std::int32_t> order = named;
  for (const std::size_t i : WorstFirst(analysis.ranks, {})) order.push_back(analysis.ranks[i].rank);
  for (const auto& [rank, cells] : cells_of) order.push_back(rank);  // Of runs without totals of their ranks.
  std::size_t cells = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto of = cells_of.find(order[i]);
    if (of == cells_of.end() || chosen.contains(order[i])) continue;
    if (cells > 0 && cells + of->second > (i < named.size() ? std::max(most, most_named) : most)) break;
    chosen.insert(order[i]);
    cells += of->second;
  }
  return {chosen.begin(), chosen.end()};
}

}  // namespace lockstep::analysis
