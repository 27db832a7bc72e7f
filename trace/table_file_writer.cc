// Columns -> compressed chunks -> PATH.part -> PATH.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>

#include "core/version.h"
#include "trace/chunk_codec.h"
#include "trace/hdf5_access.h"
#include "trace/table_file.h"

namespace lockstep {
namespace {

struct Column {
  std::size_t width;
  Hdf5Handle dataset;
  std::vector<std::byte> pending;  // Rows of the chunk that is not full yet.
};

struct TableState {
  schema::TableInfo info;
  std::vector<Column> columns;
  std::size_t chunk_rows = 0;  // 0: datasets are not made yet.
  std::uint64_t rows = 0;      // Appended, pending ones included.
};

}  // namespace

struct TableFileWriter::Impl {
  std::string path, part;
  std::string format;
  Hdf5Handle file;
  Hdf5Handle chunked;  // Creation properties of every dataset.
  std::map<std::string, TableState, std::less<>> tables;
  ChunkEncoder encoder;
  bool failed = false;

  ~Impl() { Close(); }

  Error Failed(std::string what) {
    failed = true;
    return Error{ErrorCode::kIo, std::move(what), part, "free space on that file system, or choose another with -o"};
  }

  auto AddTable(const schema::TableInfo& info) {
    TableState table{.info = info, .columns = std::vector<Column>(info.column_count)};
    for (std::size_t i = 0; i < info.column_count; ++i) table.columns[i].width = WidthOf(info.columns[i].type);
    return tables.emplace(info.name, std::move(table)).first;
  }

  // Datasets are made with the first chunk, when it is known whether the table is a
  // small one: a chunk of 64 Ki rows for ten would cost its reader 512 KiB a column.
  Status MakeDatasets(TableState& table, std::size_t chunk_rows) {
    const Hdf5Lock lock;
    const std::string name(table.info.name);
    const Hdf5Handle group(H5Gcreate2(file.get(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    if (!group.ok() || !WriteTextAttribute(group.get(), "description", table.info.description))
      return Failed("cannot make table " + name);
    const hsize_t none = 0, unlimited = H5S_UNLIMITED, chunk = chunk_rows;
    const Hdf5Handle space(H5Screate_simple(1, &none, &unlimited));
    table.chunk_rows = chunk_rows;
    if (H5Pset_chunk(chunked.get(), 1, &chunk) < 0) return Failed("cannot make table " + name);
    for (std::size_t i = 0; i < table.info.column_count; ++i) {
      const schema::ColumnInfo& column = table.info.columns[i];
      const std::string column_name(column.name);
      Hdf5Handle dataset(H5Dcreate2(group.get(), column_name.c_str(), FileType(column.type), space.get(), H5P_DEFAULT,
                                    chunked.get(), H5P_DEFAULT));
      if (!dataset.ok() || !WriteTextAttribute(dataset.get(), "unit", column.unit) ||
          !WriteTextAttribute(dataset.get(), "description", column.description))
        return Failed("cannot make column " + name + "/" + column_name);
      table.columns[i].dataset = std::move(dataset);
    }
    return Ok();
  }

  // The column's chunk number `chunk`, of which `rows` are there.
  Status WriteChunk(TableState& table, Column& column, const std::byte* values, std::uint64_t chunk, std::size_t rows) {
    if (table.chunk_rows == 0) LS_CHECK(MakeDatasets(table, kChunkRows));
    const std::span<const std::byte> stored = encoder.Encode(values, rows, table.chunk_rows, column.width);
    if (stored.empty()) return Failed("cannot compress a chunk: out of memory");
    const Hdf5Lock lock;
    const hsize_t offset = chunk * table.chunk_rows, extent = offset + rows;
    if (H5Dset_extent(column.dataset.get(), &extent) < 0 ||
        H5Dwrite_chunk(column.dataset.get(), H5P_DEFAULT, 0, &offset, stored.size(), stored.data()) < 0)
      return Failed("cannot write a chunk");
    return Ok();
  }

  Status AppendTo(TableState& table, Column& column, const std::byte* data, std::size_t rows) {
    const std::size_t chunk_bytes = kChunkRows * column.width;
    std::uint64_t chunk = table.rows / kChunkRows;
    std::size_t bytes = rows * column.width;
    if (!column.pending.empty()) {
      const std::size_t take = std::min(bytes, chunk_bytes - column.pending.size());
      column.pending.insert(column.pending.end(), data, data + take);
      data += take;
      bytes -= take;
      if (column.pending.size() < chunk_bytes) return Ok();
      LS_CHECK(WriteChunk(table, column, column.pending.data(), chunk, kChunkRows));
      column.pending.clear();
      ++chunk;
    }
    for (; bytes >= chunk_bytes; data += chunk_bytes, bytes -= chunk_bytes, ++chunk)
      LS_CHECK(WriteChunk(table, column, data, chunk, kChunkRows));
    column.pending.insert(column.pending.end(), data, data + bytes);
    return Ok();
  }

  // Last, partial chunks: stored at full size, padded with zeros, as HDF5 does.
  Status Flush() {
    for (auto& [name, table] : tables) {
      if (table.chunk_rows == 0)
        LS_CHECK(
            MakeDatasets(table, table.rows == 0 ? kChunkRows : std::bit_ceil(std::max<std::size_t>(table.rows, 16))));
      for (Column& column : table.columns) {
        if (column.pending.empty()) continue;
        LS_CHECK(WriteChunk(table, column, column.pending.data(), table.rows / kChunkRows, table.rows % kChunkRows));
        column.pending = {};
      }
    }
    return Ok();
  }

  // Gives back libhdf5's status of the last close, which is when it writes.
  bool Close() {
    const Hdf5Lock lock;
    tables.clear();
    const bool chunked_ok = chunked.Close() >= 0;
    return file.Close() >= 0 && chunked_ok;
  }
};

TableFileWriter::TableFileWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TableFileWriter::TableFileWriter(TableFileWriter&&) noexcept = default;
TableFileWriter& TableFileWriter::operator=(TableFileWriter&&) noexcept = default;
TableFileWriter::~TableFileWriter() {
  // The tables' last rows stay readable in PATH.part; what failed once is not tried again.
  if (impl_ && impl_->file.ok() && !impl_->failed) (void)impl_->Flush();
}

Result<TableFileWriter> TableFileWriter::Create(const std::string& path, std::string_view format) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->part = path + ".part";
  impl->format = format;
  // libhdf5's own error for a file that cannot be made names neither path nor reason.
  const int probe = ::open(impl->part.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);
  if (probe < 0)
    return Error{ErrorCode::kIo, std::string("cannot create the file: ") + std::strerror(errno), impl->part,
                 "choose a directory that can be written, with -o"};
  ::close(probe);
  {
    const Hdf5Lock lock;
    const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS));
    // Formats of 1.10: the chunk index of a growing column is found in constant time.
    H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110);
    DoNotLockFile(access.get());
    const Hdf5Handle creation(H5Pcreate(H5P_FILE_CREATE));
    impl->file = Hdf5Handle(H5Fcreate(impl->part.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()));
    impl->chunked = Hdf5Handle(H5Pcreate(H5P_DATASET_CREATE));
    const hid_t chunked = impl->chunked.get();
    if (!impl->file.ok() || H5Pset_shuffle(chunked) < 0 || H5Pset_deflate(chunked, 1) < 0 ||
        H5Pset_fill_time(chunked, H5D_FILL_TIME_NEVER) < 0 || H5Pset_obj_track_times(chunked, false) < 0 ||
        !WriteTextAttribute(impl->file.get(), "format", format) ||
        !WriteFixedTextAttribute(impl->file.get(), kFormatAttribute, format) ||
        !WriteTextAttribute(impl->file.get(), "lockstep_version", LOCKSTEP_VERSION) ||
        !WriteIntAttribute(impl->file.get(), "complete", 0))
      return impl->Failed("cannot create the HDF5 file");
  }
  return TableFileWriter(std::move(impl));
}

Status TableFileWriter::AppendColumns(const schema::TableInfo& info, const std::vector<ColumnBytes>& columns,
                                      std::size_t rows) {
  auto at = impl_->tables.find(info.name);
  if (at == impl_->tables.end()) at = impl_->AddTable(info);
  TableState& table = at->second;
  for (std::size_t i = 0; i < columns.size(); ++i)
    LS_CHECK(impl_->AppendTo(table, table.columns[i], columns[i].data, rows));
  table.rows += rows;
  return Ok();
}

Status TableFileWriter::SetAttribute(std::string_view name, std::int64_t value) {
  const Hdf5Lock lock;
  if (!WriteIntAttribute(impl_->file.get(), std::string(name).c_str(), value))
    return impl_->Failed("cannot write attribute " + std::string(name));
  return Ok();
}

Status TableFileWriter::SetAttribute(std::string_view name, std::string_view text) {
  const Hdf5Lock lock;
  const std::string key(name);
  if (H5Aexists(impl_->file.get(), key.c_str()) > 0) H5Adelete(impl_->file.get(), key.c_str());
  if (!WriteFixedTextAttribute(impl_->file.get(), key.c_str(), text))
    return impl_->Failed("cannot write attribute " + key);
  return Ok();
}

Status TableFileWriter::Finish() {
  Impl& impl = *impl_;
  if (impl.failed) return impl.Failed("the file is incomplete after an earlier error");
  const auto add_absent = [&](const auto& infos) {
    for (const schema::TableInfo& info : infos)
      if (!impl.tables.contains(info.name)) impl.AddTable(info);
  };
  if (impl.format == schema::kRankFileFormat) add_absent(schema::kRankTableInfos);
  if (impl.format == schema::kTimelineFormat) add_absent(schema::kTimelineTableInfos);
  LS_CHECK(impl.Flush());
  LS_CHECK(SetAttribute("complete", std::int64_t{1}));
  if (!impl.Close()) return impl.Failed("cannot write the end of the file");

  const int file = ::open(impl.part.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = file >= 0 && ::fsync(file) == 0;
  if (file >= 0) ::close(file);
  if (!synced || std::rename(impl.part.c_str(), impl.path.c_str()) != 0)
    return impl.Failed(std::string("cannot finish the file: ") + std::strerror(errno));
  return Ok();
}

}  // namespace lockstep
