#pragma once
// HDF5 files of Lockstep tables: one group per table, one 1-D chunked dataset
// per column (chunks of 64 Ki rows, one smaller chunk for a table of fewer rows;
// shuffle + deflate level 1), attributes `unit` and `description`. Rank files and timeline.h5 alike.
//
// Writing: chunks are compressed by libdeflate in the caller's thread and
// written whole (H5Dwrite_chunk). Reading: H5Dget_chunk_info + pread + libdeflate,
// any number of threads. libhdf5 itself (Debian's is not thread-safe) is only
// ever entered under one process-wide lock inside this module.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/schema.h"
#include "core/zero_pages.h"

namespace lockstep::trace {

inline constexpr std::size_t kChunkRows = 64 * 1024;

// Calls f(i) for each i below n, in any order, on several threads; returns when all are done.
using RunParallel = std::function<void(std::size_t n, const std::function<void(std::size_t)>& f)>;

// Rows of a table that are stored in another file of ours, in its table of the same name.
struct TablePart {
  std::string file;            // Relative to the directory of the file that names it.
  std::uint64_t rows, digest;  // As returned by TableFile::Digests for that table in that file.
};

// Writes a file of its own beside PATH (core/own_file.h), which Finish syncs and gives the name PATH: what was there
// is replaced by the whole file or not at all. A writer that is destroyed without Finish leaves nothing.
// Thread: one at a time.
class TableFileWriter {
 public:
  // `format` is schema::kRankFileFormat or kTimelineFormat. kIo if the file cannot be made.
  // `parallel` compresses on several threads; what is written is the same.
  static Result<TableFileWriter> Create(const std::string& path, std::string_view format, RunParallel parallel = {});
  TableFileWriter(TableFileWriter&&) noexcept;
  TableFileWriter& operator=(TableFileWriter&&) noexcept;
  ~TableFileWriter();

  // Appends all rows of `table`, as many as its first column has; where another column has fewer, the rest is unknown.
  // Tables may be appended to any number of times, in any order.
  template <typename Table>
  Status Append(const Table& table) {
    std::vector<ColumnBytes> columns;
    table.ForEachColumn([&](const schema::ColumnInfo& info, const auto& values) {
      columns.push_back({&info, reinterpret_cast<const std::byte*>(values.data()), sizeof(values[0]), values.size()});
    });
    return AppendColumns(Table::kInfo, columns, table.rows());
  }

  // A table whose rows are those of the parts, in order: HDF5 virtual datasets, and a list with which our reader checks
  // the parts. Must not be combined with Append of the same table.
  Status AddParts(const schema::TableInfo& table, const std::vector<TablePart>& parts);

  // Root attribute, 64-bit or text (up to 60 KiB; h5py gives it as bytes).
  Status SetAttribute(std::string_view name, std::int64_t value);
  Status SetAttribute(std::string_view name, std::string_view text);

  // Writes what is buffered, sets `complete`, closes, fsyncs and renames. Afterwards every
  // table of a timeline exists, and of a rank file those that have rows.
  Status Finish();

  // Finish for several files: Write each, then Publish all. The disk is waited for once and not for each file. They get
  // their names in this order; the first that fails and those after it stay without.
  Status Write();
  static Status Publish(std::span<TableFileWriter> writers);

 private:
  struct ColumnBytes {
    const schema::ColumnInfo* info;
    const std::byte* data;
    std::size_t width;
    std::size_t rows;
  };
  Status AppendColumns(const schema::TableInfo& table, std::vector<ColumnBytes> columns, std::size_t rows);
  struct Impl;
  explicit TableFileWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Thread: Read* may be called by several threads at once.
class TableFile {
 public:
  // kNotFound, kMalformed (not HDF5, not ours, cut), kUnsupported (newer format).
  static Result<TableFile> Open(const std::string& path);
  TableFile(TableFile&&) noexcept;
  TableFile& operator=(TableFile&&) noexcept;
  ~TableFile();

  // All positions were found in the index after its end (trace/file/file_index.h): libhdf5 is not used.
  bool indexed() const;
  // Opened files stay open until Release, which also forgets what can be read again: for code that keeps thousands of
  // them. Hold opens it again. Not while another thread reads.
  void Release() const;
  void Hold() const;

  std::string_view format() const;
  bool complete() const;
  std::int64_t Attribute(std::string_view name, std::int64_t fallback) const;
  std::string Attribute(std::string_view name, std::string_view fallback) const;

  // Examines all tables at once: cheaper than one after the other if most of them will be read.
  void LookAtAll() const;

  // Rows of the table: the least of its columns; 0 if it is absent.
  std::uint64_t Rows(std::string_view table) const;

  // Rows [first, first + count) of every column; count is cut to what is there.
  // Columns absent in the file (older version) are filled with what the schema has for "unknown" (MissingColumns).
  template <typename Table>
  Result<Table> Read(std::uint64_t first = 0, std::uint64_t count = UINT64_MAX) const {
    Table table;
    const std::uint64_t rows = Rows(Table::kInfo.name);
    first = first < rows ? first : rows;
    count = count < rows - first ? count : rows - first;
    Status status = Ok();
    try {
      table.ForEachColumn([&](const schema::ColumnInfo& info, auto& values) {
        if (!status.ok()) return;
        values.resize(count);
        status = ReadColumn(Table::kInfo.name, info, first, count, reinterpret_cast<std::byte*>(values.data()));
        GiveBackZeroPages(values);
      });
    } catch (const std::bad_alloc&) {
      return Error{ErrorCode::kUnsupported, std::string(Table::kInfo.name) + ": more rows than memory", "",
                   "use a machine with more memory"};
    }
    if (!status.ok()) return status.error();
    return table;
  }
  // All rows of these columns only; the others stay empty. Table::rows() is the
  // length of its first column, so name that one too where rows() will be asked.
  template <typename Table>
  Result<Table> ReadColumns(schema::Columns<Table> columns) const {
    Table table;
    const std::uint64_t rows = Rows(Table::kInfo.name);
    Status status = Ok();
    std::size_t column = 0;
    table.ForEachColumn([&](const schema::ColumnInfo& info, auto& values) {
      if (!columns.Has(column++) || !status.ok()) return;
      values.resize(rows);
      status = ReadColumn(Table::kInfo.name, info, 0, rows, reinterpret_cast<std::byte*>(values.data()));
    });
    if (!status.ok()) return status.error();
    return table;
  }
  // Rows [first, first + count) of one column, as many as its type's width in bytes each; the schema's
  // "unknown" if the file lacks it.
  Status ReadColumn(std::string_view table, const schema::ColumnInfo& column, std::uint64_t first, std::uint64_t count,
                    std::byte* out) const;
  // "collectives/reduction": columns that are newer than the file, of the tables that it has. They read as the schema's
  // "unknown".
  std::vector<std::string> MissingColumns() const;

  // Checksum of all decoded values, table by table, column by column, in schema
  // order: equal for files that hold the same values, however they were written.
  struct Digest {
    std::string table;
    std::uint64_t rows, value;
    std::vector<std::uint64_t> columns;  // Of each dataset, in schema order.
  };
  Result<std::vector<Digest>> Digests() const;

 private:
  struct Impl;
  explicit TableFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Every table of a rank file or timeline. Damaged tables come back empty and are
// named in `damaged` ("mpi_calls: chunk 3: bad deflate stream"): nothing readable is lost because something else was
// bad.
struct RankFileContents {
  schema::RankTables tables;
  std::vector<std::string> damaged;
  bool complete = false;
};
Result<RankFileContents> ReadRankFile(const std::string& path);
Status WriteRankFile(const std::string& path, const schema::RankTables& tables, RunParallel parallel = {});
// Several, which get their names in this order.
struct NamedTables {
  std::string path;
  const schema::RankTables* tables;
};
Status WriteRankFiles(std::span<const NamedTables> files);
Result<schema::TimelineTables> ReadTimelineFile(const std::string& path);
Status WriteTimelineFile(const std::string& path, const schema::TimelineTables& tables, RunParallel parallel = {});

}  // namespace lockstep::trace
