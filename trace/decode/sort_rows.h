#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "core/schema.h"

namespace lockstep::trace {

// Sorts rows by time, stably. Returns old row -> new row; empty if nothing moved.
template <typename Table>
std::vector<std::uint32_t> SortRows(Table& table, const std::vector<std::int64_t>& times) {
  if (std::is_sorted(times.begin(), times.end())) return {};
  std::vector<std::uint32_t> order(times.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return times[a] < times[b]; });
  table.ForEachColumn([&](const schema::ColumnInfo&, auto& column) {
    auto sorted = column;
    for (std::size_t i = 0; i < order.size(); ++i) sorted[i] = column[order[i]];
    column = std::move(sorted);
  });
  std::vector<std::uint32_t> moved(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) moved[order[i]] = static_cast<std::uint32_t>(i);
  return moved;
}

}  // namespace lockstep::trace
