// RFC 4180, with \n as line end. Texts as in core/printed.h: no control characters, no formulas.

#include <fmt/format.h>

#include <cmath>

#include "analysis/tables/engine/table.h"
#include "core/printed.h"

namespace lockstep::tables {
namespace {

std::string Field(const Cell& cell) {
  if (const auto* number = std::get_if<std::int64_t>(&cell)) return fmt::format("{}", *number);
  if (const auto* real = std::get_if<double>(&cell)) return std::isfinite(*real) ? fmt::format("{}", *real) : "";
  if (const auto* text = std::get_if<std::string>(&cell)) return PrintedCsv(*text);
  return {};
}

}  // namespace

std::string RenderTableCsv(const Table& table) {
  std::string out;
  for (std::size_t c = 0; c < table.columns.size(); ++c) out += (c > 0 ? "," : "") + table.columns[c].name;
  out += '\n';
  for (const std::vector<Cell>& row : table.rows) {
    for (std::size_t c = 0; c < row.size(); ++c) out += (c > 0 ? "," : "") + Field(row[c]);
    out += '\n';
  }
  return out;
}

}  // namespace lockstep::tables
