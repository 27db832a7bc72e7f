// RFC 4180, with \n as line end.

#include <fmt/format.h>

#include <cmath>

#include "analysis/tables/table.h"

namespace lockstep {
namespace {

std::string Field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string Field(const Cell& cell) {
  if (const auto* number = std::get_if<std::int64_t>(&cell)) return fmt::format("{}", *number);
  if (const auto* real = std::get_if<double>(&cell)) return std::isfinite(*real) ? fmt::format("{}", *real) : "";
  if (const auto* text = std::get_if<std::string>(&cell)) return Field(std::string_view(*text));
  return {};
}

}  // namespace

std::string RenderTableCsv(const Table& table) {
  std::string out;
  for (std::size_t c = 0; c < table.columns.size(); ++c)
    out += (c > 0 ? "," : "") + Field(std::string_view(table.columns[c].name));
  out += '\n';
  for (const std::vector<Cell>& row : table.rows) {
    for (std::size_t c = 0; c < row.size(); ++c) out += (c > 0 ? "," : "") + Field(row[c]);
    out += '\n';
  }
  return out;
}

}  // namespace lockstep
