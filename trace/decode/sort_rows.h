#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/schema.h"

namespace lockstep::trace {

// Returns the rows with these numbers, in that order, and no others.
template <typename Table>
void TakeRows(Table& table, const std::vector<std::uint32_t>& rows) {
  table.ForEachColumn([&](const schema::ColumnInfo&, auto& column) {
    std::decay_t<decltype(column)> taken(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) taken[i] = column[rows[i]];
    column = std::move(taken);
  });
}

// Sorts rows, stably; less(a, b) says whether row a goes before row b. Returns old row -> new row; empty if nothing
// moved.
template <typename Table, typename Less>
std::vector<std::uint32_t> SortRowsBy(Table& table, Less&& less) {
  std::vector<std::uint32_t> order(table.rows());
  std::iota(order.begin(), order.end(), 0u);
  if (std::is_sorted(order.begin(), order.end(), less)) return {};
  std::stable_sort(order.begin(), order.end(), less);
  TakeRows(table, order);
  std::vector<std::uint32_t> moved(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) moved[order[i]] = static_cast<std::uint32_t>(i);
  return moved;
}

// The same by time; `times` may be a column of the table.
template <typename Table>
std::vector<std::uint32_t> SortRows(Table& table, const std::vector<std::int64_t>& times) {
  if (std::is_sorted(times.begin(), times.end())) return {};
  return SortRowsBy(table, [&](std::uint32_t a, std::uint32_t b) { return times[a] < times[b]; });
}

}  // namespace lockstep::trace
