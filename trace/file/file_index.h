#pragma once
// Where everything lies in an HDF5 file of ours, written behind its end by its writer:
// a reader that finds it needs libhdf5 for nothing, which is most of the time that a
// run of thousands of small files takes. To everybody else the bytes are not there
// (HDF5 ends where its superblock says). It is believed only while no byte of the file
// but the chunks has changed since, so a file that somebody edited, cut or damaged is
// read through libhdf5; docs/trace-format.md describes it.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/schema.h"
#include "trace/file/column_index.h"

namespace lockstep::trace {

// A root attribute: a number or a text.
struct StoredAttribute {
  bool is_text = false;
  std::int64_t number = 0;
  std::string text;
};

struct IndexedColumn {
  std::string_view name;
  std::uint8_t width;
  bool is_signed;
  std::uint64_t rows, chunk_rows;
  std::vector<StoredChunk> chunks;
};
struct IndexedTable {
  std::string_view name;
  std::vector<IndexedColumn> columns;
};

// Takes apart and puts together what the index holds.
class FileIndex {
 public:
  // Writing: in any order, then Append.
  void AddAttribute(std::string_view name, const StoredAttribute& value);
  void AddTable(const IndexedTable& table);
  // Behind the closed file; `fd` open for reading and writing. False: the file is as it was before.
  bool Append(int fd);

  // The index of a file of this size; nullopt: none, or not the one of these bytes.
  static std::optional<FileIndex> Load(int fd, std::uint64_t file_bytes);
  void ForEachAttribute(const std::function<void(std::string_view, const StoredAttribute&)>& f) const;
  // Absent table: no columns, no rows.
  StoredTable Table(const schema::TableInfo& info) const;

 private:
  std::string attributes_, tables_;
  std::uint32_t attribute_count_ = 0, table_count_ = 0;
};

}  // namespace lockstep::trace
