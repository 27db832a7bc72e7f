#pragma once
// Helper functions for the code that fills tables.

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "analysis/tables/engine/table.h"

namespace lockstep::tables {

inline Cell Text(std::string_view text) { return std::string(text); }
inline Cell Int(std::int64_t value) { return value; }
inline Cell IntOrUnknown(std::int64_t value, bool known) { return known ? Cell(value) : Cell(); }
// Unknown if the whole is not known or 0.
inline Cell Share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? Cell(static_cast<double>(part) / static_cast<double>(whole)) : Cell();
}
// Nearest integer of a sum over n.
inline std::int64_t Mean(std::int64_t sum, std::int64_t n) {
  return n > 0 ? (sum + (sum >= 0 ? n / 2 : -n / 2)) / n : 0;
}

inline bool Known(const Cell& cell) { return !std::holds_alternative<std::monostate>(cell); }
inline std::int64_t IntOf(const Cell& cell, std::int64_t otherwise = 0) {
  const auto* value = std::get_if<std::int64_t>(&cell);
  return value != nullptr ? *value : otherwise;
}
inline double RealOf(const Cell& cell, double otherwise = 0) {
  const auto* value = std::get_if<double>(&cell);
  return value != nullptr ? *value : otherwise;
}
inline std::string_view TextOfCell(const Cell& cell) {
  const auto* value = std::get_if<std::string>(&cell);
  return value != nullptr ? std::string_view(*value) : std::string_view();
}
// The index of the column with this name; the number of columns if none has it.
inline std::size_t ColumnOf(const Table& table, std::string_view name) {
  return static_cast<std::size_t>(std::find_if(table.columns.begin(), table.columns.end(),
                                               [&](const TableColumn& column) { return column.name == name; }) -
                                  table.columns.begin());
}
// Whether the row is of all ranks together.
inline bool IsPooled(const TableRow& row) { return std::holds_alternative<std::string>(row[0]); }
// A column by which rows are ordered.
struct SortKey {
  Column column;
  bool descending;
};
// Texts, or numbers with unknown ones first.
inline SortKey Up(Column column) { return {column, false}; }
// Largest numbers first; unknown ones count as 0.
inline SortKey Down(Column column) { return {column, true}; }
// Whether row `a` comes before row `b` by the first of these columns in which they differ.
bool InOrder(const TableRow& a, const TableRow& b, std::initializer_list<SortKey> keys);

// A value of totals; 0 if none was added under this name.
inline std::int64_t TotalOf(const TableTotals& totals, std::string_view name) {
  const auto at = totals.find(name);
  return at != totals.end() ? at->second : 0;
}
// How many of so many rows are shown: all without a limit.
inline std::size_t RowsWanted(const TableOptions& options, std::size_t rows) {
  return options.top == 0 ? rows : std::min(options.top, rows);
}
// Whether the name contains the text that the user asked for.
inline bool Passes(std::string_view name, const TableOptions& options) {
  return options.filter.empty() || name.find(options.filter) != std::string_view::npos;
}

}  // namespace lockstep::tables
