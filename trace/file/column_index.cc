#include "trace/file/column_index.h"

#include <algorithm>

#include "trace/file/hdf5_attributes.h"
#include "trace/file/left_out.h"

namespace lockstep::trace {
namespace {

// Protects against sizes that no file of ours has, which would only exhaust memory.
constexpr std::uint64_t kMaxRows = std::uint64_t{1} << 36;
// deflate cannot expand beyond about 1032 to 1; chunks never stored read as zeros, which small ones may.
constexpr std::uint64_t kMaxExpansion = 1040, kMaxUnstoredBytes = 64u << 20;
constexpr std::uint64_t kMaxChunks = 1u << 20, kMaxChunkRows = 1u << 26;

// Reads the order of the dataset's filters; returns false if this code cannot undo them.
bool ReadFilters(hid_t creation, StoredColumn& column) {
  const int filters = H5Pget_nfilters(creation);
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0, config = 0, parameters[8] = {};
    std::size_t count = 8;
    switch (H5Pget_filter2(creation, static_cast<unsigned>(i), &flags, &count, parameters, 0, nullptr, &config)) {
      case H5Z_FILTER_SHUFFLE:
        // Shuffling after deflating is allowed by HDF5, but not supported here.
        if (column.shuffle_filter >= 0 || column.deflate_filter >= 0) return false;
        if (count >= 1 && parameters[0] != column.width) return false;
        column.shuffle_filter = i;
        break;
      case H5Z_FILTER_DEFLATE:
        if (column.deflate_filter >= 0) return false;
        column.deflate_filter = i;
        break;
      default:
        return false;
    }
  }
  return filters >= 0;
}

bool FillsWithZero(hid_t creation, hid_t type, std::size_t width) {
  H5D_fill_value_t defined = H5D_FILL_VALUE_ERROR;
  if (H5Pfill_value_defined(creation, &defined) < 0) return false;
  if (defined != H5D_FILL_VALUE_USER_DEFINED) return true;
  std::uint64_t value = 0;
  return width <= sizeof value && H5Pget_fill_value(creation, type, &value) >= 0 && value == 0;
}

bool IndexChunks(hid_t dataset, StoredColumn& column, std::uint64_t file_bytes) {
  const std::uint64_t count = (column.rows + column.chunk_rows - 1) / column.chunk_rows;
  column.chunks.reserve(std::min<std::uint64_t>(count, 4096));
  for (std::uint64_t i = 0; i < count; ++i) {
    const hsize_t at = i * column.chunk_rows;
    haddr_t address = HADDR_UNDEF;
    hsize_t bytes = 0;
    unsigned skipped = 0;
    if (H5Dget_chunk_info_by_coord(dataset, &at, &skipped, &address, &bytes) < 0) return false;
    StoredChunk& chunk = column.chunks.emplace_back();
    if (address == HADDR_UNDEF) continue;
    if (address == 0 || address > file_bytes || bytes > file_bytes - address) return false;
    chunk = {address, bytes, skipped};
  }
  return true;
}

StoredColumn IndexColumn(hid_t dataset, std::uint64_t file_bytes) {
  StoredColumn column;
  const Hdf5Handle space(H5Dget_space(dataset));
  if (!space.ok() || H5Sget_simple_extent_ndims(space.get()) != 1) return column;
  hsize_t rows = 0;
  if (H5Sget_simple_extent_dims(space.get(), &rows, nullptr) != 1 || rows > kMaxRows) return column;
  column.one_dimensional = true;
  column.rows = rows;
  const Hdf5Handle type(H5Dget_type(dataset));
  if (!type.ok() || H5Tget_class(type.get()) != H5T_INTEGER) return column;
  column.width = H5Tget_size(type.get());
  column.is_signed = H5Tget_sign(type.get()) == H5T_SGN_2;
  column.integer = column.width >= 1 && column.width <= 8;
  if (!column.integer || rows == 0) return column;
  if (rows * column.width > kMaxUnstoredBytes + kMaxExpansion * H5Dget_storage_size(dataset)) {
    column.overclaims = true;
    return column;
  }

  const Hdf5Handle creation(H5Dget_create_plist(dataset));
  const bool little_endian = column.width == 1 || H5Tget_order(type.get()) == H5T_ORDER_LE;
  const bool full_precision = H5Tget_precision(type.get()) == column.width * 8;
  hsize_t chunk_rows = 0;
  if (!creation.ok() || !little_endian || !full_precision || H5Pget_layout(creation.get()) != H5D_CHUNKED ||
      H5Pget_chunk(creation.get(), 1, &chunk_rows) != 1 || chunk_rows == 0)
    return column;
  column.chunk_rows = chunk_rows;
  column.direct = chunk_rows <= kMaxChunkRows && rows / chunk_rows < kMaxChunks &&
                  ReadFilters(creation.get(), column) && FillsWithZero(creation.get(), type.get(), column.width) &&
                  IndexChunks(dataset, column, file_bytes);
  if (!column.direct) column.chunks.clear();
  return column;
}

}  // namespace

Hdf5Handle OpenHdf5ForReading(const std::string& path) {
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS));
  H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG);
  DoNotLockFile(access.get());
  return Hdf5Handle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()));
}

bool FitsItsChunks(const StoredColumn& column, std::uint64_t stored_bytes) {
  if (column.rows == 0) return column.chunks.empty();
  if (column.rows > kMaxRows || column.chunk_rows == 0 || column.chunk_rows > kMaxChunkRows) return false;
  return column.rows * column.width <= kMaxUnstoredBytes + kMaxExpansion * stored_bytes &&
         column.chunks.size() == (column.rows + column.chunk_rows - 1) / column.chunk_rows;
}

StoredTable IndexTable(hid_t file, const schema::TableInfo& info, std::uint64_t file_bytes) {
  StoredTable table;
  const std::string name(info.name);
  if (H5Lexists(file, name.c_str(), H5P_DEFAULT) <= 0) return table;
  const Hdf5Handle group(H5Gopen2(file, name.c_str(), H5P_DEFAULT));
  if (!group.ok()) {
    table.problem = "group cannot be opened";
    return table;
  }
  table.rows = UINT64_MAX;
  table.columns.resize(info.column_count);
  const std::string left_out = ReadAttributes(group.get())[kLeftOutAttribute].text;
  for (std::size_t i = 0; i < info.column_count; ++i) {
    const std::string column_name(info.columns[i].name);
    const Hdf5Handle dataset(H5Dopen2(group.get(), column_name.c_str(), H5P_DEFAULT));
    if (!dataset.ok()) {
      // An absent column means an older version; one that exists and cannot be opened is damaged.
      if (H5Lexists(group.get(), column_name.c_str(), H5P_DEFAULT) != 0)
        table.problem = "column " + column_name + " cannot be opened";
      table.columns[i].left_out = IsLeftOut(left_out, info.columns[i]);
      continue;
    }
    StoredColumn column = IndexColumn(dataset.get(), file_bytes);
    if (!column.one_dimensional)
      table.problem = "column " + column_name + " is not a 1-D dataset";
    else
      table.rows = std::min(table.rows, column.rows);
    if (column.overclaims) table.problem = "column " + column_name + " claims more rows than its bytes can hold";
    const bool empty = column.one_dimensional && column.rows == 0;
    column.present = true;
    table.columns[i] = std::move(column);
    // One empty column makes the table empty, so the others are not examined.
    if (empty) break;
  }
  // No memory must be reserved for rows that cannot be read.
  if (table.rows == UINT64_MAX || !table.problem.empty()) table.rows = 0;
  return table;
}

}  // namespace lockstep::trace
