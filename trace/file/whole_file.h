#pragma once
// A file of tables that fit into a chunk each, made in memory and written at once: the usual file of a rank or of a
// small run (docs/decisions/whole-files.md). Longer tables are written while they come.

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

// A message in an object's header holds less than 64 KiB.
inline constexpr std::size_t kMostFixedText = 60 * 1024;

// Whether every row of the column is the schema's "unknown".
bool IsUnknownThroughout(const schema::ColumnInfo& column, std::span<const std::byte> values);

// Makes the file in memory and writes it to `fd`, which libhdf5 opens once more by `name`, with the index behind its
// end. False if libhdf5 or the disk refuses; errno may say why. Takes Hdf5Lock. Texts among the attributes have up to
// kMostFixedText bytes.
bool WriteWholeFile(int fd, const std::string& name, std::string_view format,
                    const std::map<std::string, StoredAttribute>& attributes, const std::vector<WholeTable>& tables);

}  // namespace lockstep::trace
