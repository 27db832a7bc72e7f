#include "fuzz/check_tables.h"

#include <cstring>

namespace lockstep::fuzz {
namespace {

// Columns named for the table whose rows they count.
std::uint64_t RowsOf(const schema::RankTables& tables, const schema::ColumnInfo& column) {
  const std::string_view name = column.name, unit = column.unit;
  if (unit == "string") return tables.strings.rows();
  if (name == "thread") return tables.threads.rows();
  if (name == "comm") return tables.comms.rows();
  if (name == "call") return tables.mpi_calls.rows();
  if (name == "kernel") return tables.kernels.rows();
  if (name == "shape") return tables.kernel_shapes.rows();
  return UINT64_MAX;
}

template <typename Table>
std::string CheckTable(const schema::RankTables& tables, std::string_view table_name, const Table& table) {
  std::string problem;
  const std::size_t rows = table.rows();
  table.ForEachColumn([&](const schema::ColumnInfo& info, const auto& values) {
    if (!problem.empty()) return;
    const std::string place = std::string(table_name) + "." + std::string(info.name);
    if (values.size() != rows) {
      problem = place + ": " + std::to_string(values.size()) + " values in " + std::to_string(rows) + " rows";
      return;
    }
    const std::uint64_t limit = RowsOf(tables, info);
    const bool duration = std::string_view(info.name) == "duration_ns";
    for (std::size_t i = 0; i < rows; ++i) {
      const auto value = values[i];
      if (duration && static_cast<std::int64_t>(value) < 0) problem = place + ": negative";
      if (limit == UINT64_MAX || static_cast<std::uint32_t>(value) == schema::kNone) continue;
      if (static_cast<std::uint64_t>(value) >= limit) problem = place + ": " + std::to_string(value) + " leads nowhere";
    }
  });
  return problem;
}

}  // namespace

std::string CheckTables(const schema::RankTables& tables) {
  std::string problem;
  tables.ForEachTable([&](const auto& table) {
    if (problem.empty()) problem = CheckTable(tables, table.kInfo.name, table);
  });
  for (std::size_t i = 0; problem.empty() && i < tables.strings.rows(); ++i)
    if (tables.strings.offset_bytes[i] + tables.strings.length_bytes[i] > tables.string_bytes.rows())
      problem = "strings: a text outside string_bytes";
  return problem;
}

}  // namespace lockstep::fuzz
