#pragma once
// A file of tables that fit into a chunk each, composed in memory: the usual file of a rank or of a small run. libhdf5
// takes a hundred times as long for it, most of that for making datasets and attributes one by one
// (docs/decisions/whole-files.md). Longer tables are written through libhdf5 while they come.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/schema.h"
#include "trace/file/file_index.h"

namespace lockstep::trace {

struct WholeColumn {
  const schema::ColumnInfo* info;
  std::span<const std::byte> values;
  std::vector<std::byte> deflated;  // Their chunk; empty: they are stored as they are.
  bool left_out = false;            // Every row is what a reader fills in where a column is absent.
};

struct WholeTable {
  const schema::TableInfo* info;
  std::uint64_t rows = 0;
  std::vector<WholeColumn> columns;
};

// Longer columns are stored as a chunk, shorter ones in the header of their dataset.
inline constexpr std::size_t kMostRawBytes = 512;

// Whether every row of the column is the schema's "unknown".
bool IsUnknownThroughout(const schema::ColumnInfo& column, std::span<const std::byte> values);

// The bytes of the file, the index behind its end included. Texts among the attributes have up to kMostFixedText bytes.
std::string ComposeWholeFile(std::string_view format, const std::map<std::string, StoredAttribute>& attributes,
                             const std::vector<WholeTable>& tables);

}  // namespace lockstep::trace
