#pragma once
// The positions of an HDF5 file's columns. Made once under the lock, used by any number of threads without it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/schema.h"
#include "trace/file/hdf5_access.h"

namespace lockstep::trace {

struct StoredChunk {
  std::uint64_t offset = 0;  // In the file; 0: not stored, its values are zeros.
  std::uint64_t bytes = 0;
  std::uint32_t skipped_filters = 0;  // Bit i: filter i was not applied.
};

struct StoredColumn {
  bool present = false;
  bool left_out = false;  // Not present because every row is unknown (trace/file/left_out.h), not because it is newer.
  bool one_dimensional = false;
  bool integer = false;
  bool overclaims = false;  // It claims more rows than its stored bytes can expand to.
  bool is_signed = false;
  std::size_t width = 0;
  std::uint64_t rows = 0;
  bool direct = false;  // Chunks can be read without libhdf5; else H5Dread.
  std::uint64_t chunk_rows = 0;
  int shuffle_filter = -1, deflate_filter = -1;  // Position in the pipeline, -1 absent.
  std::vector<StoredChunk> chunks;
};

struct StoredTable {
  std::uint64_t rows = 0;             // Least over the columns.
  std::vector<StoredColumn> columns;  // As the schema lists them; none if the table is absent.
  std::string problem;                // Why it is unreadable; empty if it is not.
};

// Whether the numbers of rows and chunks agree, and the chunks' bytes can hold as many rows.
bool FitsItsChunks(const StoredColumn& column, std::uint64_t stored_bytes);

// Columns that the schema does not contain are ignored. Absent tables: no columns, no rows. Hdf5Lock held.
StoredTable IndexTable(hid_t file, const schema::TableInfo& info, std::uint64_t file_bytes);

// Opens for reading, without locks on the file. Hdf5Lock held.
Hdf5Handle OpenHdf5ForReading(const std::string& path);

}  // namespace lockstep::trace
