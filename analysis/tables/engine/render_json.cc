// Written by hand: a table of many ranks is large, and a tree of it larger.

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/tables/engine/table.h"

namespace lockstep::tables {
namespace {

// Names come from traces: bytes that are no UTF-8 become U+FFFD.
std::string Quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string ValueText(const Cell& cell) {
  if (const auto* number = std::get_if<std::int64_t>(&cell)) return fmt::format("{}", *number);
  if (const auto* real = std::get_if<double>(&cell)) return std::isfinite(*real) ? fmt::format("{}", *real) : "null";
  if (const auto* text = std::get_if<std::string>(&cell)) return Quoted(*text);
  return "null";
}

}  // namespace

std::string RenderTableJson(const Table& table) {
  std::string out = fmt::format("{{\"schema\":\"lockstep.table/1\",\"name\":{},\"title\":{},\n\"columns\":[",
                                Quoted(table.name), Quoted(table.title));
  for (std::size_t c = 0; c < table.columns.size(); ++c)
    out +=
        fmt::format("{}\n  {{\"name\":{},\"kind\":\"{}\",\"description\":{}}}", c > 0 ? "," : "",
                    Quoted(table.columns[c].name), NameOf(table.columns[c].kind), Quoted(table.columns[c].description));
  out += "],\n\"rows\":[";
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    out += r > 0 ? ",\n  [" : "\n  [";
    for (std::size_t c = 0; c < table.rows[r].size(); ++c) out += (c > 0 ? "," : "") + ValueText(table.rows[r][c]);
    out += ']';
  }
  out += "],\n\"notes\":[";
  for (std::size_t n = 0; n < table.notes.size(); ++n) out += (n > 0 ? ",\n  " : "\n  ") + Quoted(table.notes[n]);
  return out + "]}\n";
}

}  // namespace lockstep::tables
