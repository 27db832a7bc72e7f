#pragma once
// The positions of everything in an HDF5 file of ours, written after its end by its writer. A reader that finds the
// index does not need libhdf5, which would take most of the time that a run of thousands of small files needs. Other
// readers do not see these bytes (HDF5 ends where its superblock says). The index is only valid while no byte of the
// file but the chunks has changed since, so a file that was edited, cut or damaged is read through libhdf5.
// docs/trace-format.md describes it.

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

// A table of a file that was made whole: each column is one piece.
struct SmallColumn {
  std::string_view name;
  std::uint8_t width = 0;
  bool is_signed = false;
  bool left_out = false;  // Not in the file: every row is unknown.
  bool raw = false;       // No filters. Such values are covered by the checksum, as they carry none of their own.
  std::uint64_t offset = 0, bytes = 0;
};
struct SmallTable {
  std::string_view name;
  std::uint32_t rows;
  std::vector<SmallColumn> columns;
};

// Takes apart and puts together what the index holds. An index has tables of one form, IndexedTable or SmallTable.
class FileIndex {
 public:
  // Writing: in any order, then Append.
  void AddAttribute(std::string_view name, const StoredAttribute& value);
  void AddTable(const IndexedTable& table);
  void AddTable(const SmallTable& table);
  // Appends it to the closed file; `fd` open for reading and writing. Returns false if the file stayed as it was
  // before.
  bool Append(int fd);

  // The index of a file of this size; nullopt if there is none, or if it does not belong to these bytes.
  static std::optional<FileIndex> Load(int fd, std::uint64_t file_bytes);
  void ForEachAttribute(const std::function<void(std::string_view, const StoredAttribute&)>& f) const;
  // Absent table: no columns, no rows.
  StoredTable Table(const schema::TableInfo& info) const;

 private:
  std::string attributes_, tables_;
  std::uint32_t attribute_count_ = 0, table_count_ = 0;
  bool small_ = false;

  // The bytes behind the `end` of the file that `read` reads; "" if they cannot be made.
  std::string Compose(std::uint64_t end, const std::function<bool(std::uint64_t, std::byte*, std::size_t)>& read) const;
};

}  // namespace lockstep::trace
