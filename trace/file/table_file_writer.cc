// Compresses columns into chunks and writes them to a file under a private name, which is then renamed to PATH. As long
// as no table needs more than one chunk, nothing is written before the end, and then all at once (whole_file.h).

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "core/own_file.h"
#include "core/version.h"
#include "trace/file/chunk_codec.h"
#include "trace/file/column_types.h"
#include "trace/file/file_index.h"
#include "trace/file/hdf5_access.h"
#include "trace/file/schema_text.h"
#include "trace/file/table_file.h"
#include "trace/file/whole_file.h"

namespace lockstep::trace {
namespace {

struct Column {
  std::size_t width;
  Hdf5Handle dataset;
  std::uint64_t chunks = 0;        // Written.
  std::vector<std::byte> pending;  // Rows of the chunk that is not full yet.
};

struct TableState {
  schema::TableInfo info;
  std::vector<Column> columns;
  std::size_t chunk_rows = 0;  // 0: datasets are not made yet.
  std::uint64_t rows = 0;      // Appended, pending ones included.
};

// A chunk to be written to the file.
struct ChunkJob {
  Column* column;
  const std::byte* values;
  std::uint64_t chunk;
  std::size_t rows, chunk_rows;
  std::vector<std::byte> stored;
};

// Chunks that are compressed at once: limits the memory they take.
constexpr std::size_t kBatch = 64;

// Writes the attributes that a reader without Lockstep needs to understand a column's values.
}  // namespace

struct TableFileWriter::Impl {
  std::string path, part;
  OwnedFd part_file;  // Locked: a process that finds the part sees that its writer still runs.
  std::string format;
  Hdf5Handle file;     // Open from the first full chunk on.
  Hdf5Handle chunked;  // Creation properties of every dataset.
  std::map<std::string, TableState, std::less<>> tables;
  ChunkEncoder encoder;
  RunParallel parallel;  // May be empty.
  FileIndex index;
  std::set<std::string, std::less<>> in_parts;
  std::string parts;                                  // The future value of attribute kPartsAttribute.
  std::map<std::string, StoredAttribute> attributes;  // Written at the end.
  bool failed = false;

  ~Impl() {
    Close();
    if (part_file.open()) ::unlink(part.c_str());
  }

  Error Failed(std::string what) {
    failed = true;
    return Error{ErrorCode::kIo, std::move(what), path, "free space on that file system, or choose another with -o"};
  }

  auto AddTable(const schema::TableInfo& info) {
    TableState table{.info = info, .columns = std::vector<Column>(info.column_count)};
    for (std::size_t i = 0; i < info.column_count; ++i) table.columns[i].width = WidthOf(info.columns[i].type);
    return tables.emplace(info.name, std::move(table)).first;
  }

  // libhdf5 opens by name: this name refers to the file that was just made, even if another process replaces it.
  std::string NameForHdf5() const {
    const std::string same = "/proc/self/fd/" + std::to_string(part_file.get());
    return ::access(same.c_str(), W_OK) == 0 ? same : part;
  }

  Status OpenHdf5() {
    const std::string name = NameForHdf5();
    const Hdf5Lock lock;
    const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS));
    // Formats of 1.10: the chunk index of a growing column is found in constant time.
    H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110);
    DoNotLockFile(access.get());
    const Hdf5Handle creation(H5Pcreate(H5P_FILE_CREATE));
    H5Pset_obj_track_times(creation.get(), false);  // Of the root group.
    file = Hdf5Handle(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()));
    chunked = Hdf5Handle(H5Pcreate(H5P_DATASET_CREATE));
    if (!file.ok() || H5Pset_shuffle(chunked.get()) < 0 || H5Pset_deflate(chunked.get(), 1) < 0 ||
        H5Pset_fill_time(chunked.get(), H5D_FILL_TIME_NEVER) < 0 || H5Pset_obj_track_times(chunked.get(), false) < 0 ||
        !WriteTextAttribute(file.get(), "format", format) ||
        !WriteTextAttribute(file.get(), "lockstep_version", LOCKSTEP_VERSION) ||
        !WriteIntAttribute(file.get(), "complete", 0))
      return Failed("cannot create the HDF5 file");
    return Ok();
  }

  // Without the time at which it was made: the same tables give the same file.
  Hdf5Handle MakeGroup(const std::string& name) {
    const Hdf5Handle creation(H5Pcreate(H5P_GROUP_CREATE));
    H5Pset_obj_track_times(creation.get(), false);
    return Hdf5Handle(H5Gcreate2(file.get(), name.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT));
  }

  // Datasets are made with the first chunk, when it is known whether the table is a
  // small one: a chunk of 64 Ki rows for ten would cost its reader 512 KiB a column.
  Status MakeDatasets(TableState& table, std::size_t chunk_rows) {
    const Hdf5Lock lock;
    const std::string name(table.info.name);
    const Hdf5Handle group = MakeGroup(name);
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
      if (!dataset.ok() || !WriteMeaning(dataset.get(), column, CodesOf(column)))
        return Failed("cannot make column " + name + "/" + column_name);
      table.columns[i].dataset = std::move(dataset);
    }
    return Ok();
  }

  Status Store(const ChunkJob& job, std::span<const std::byte> stored) {
    if (stored.empty()) return Failed("cannot compress a chunk: out of memory");
    const Hdf5Lock lock;
    const hsize_t offset = job.chunk * job.chunk_rows, extent = offset + job.rows;
    if (H5Dset_extent(job.column->dataset.get(), &extent) < 0 ||
        H5Dwrite_chunk(job.column->dataset.get(), H5P_DEFAULT, 0, &offset, stored.size(), stored.data()) < 0)
      return Failed("cannot write a chunk");
    job.column->chunks = std::max(job.column->chunks, job.chunk + 1);
    return Ok();
  }

  // Writes them to the file in the given order, however many threads compress them.
  Status WriteChunks(std::vector<ChunkJob>& jobs) {
    if (!parallel || jobs.size() < 2) {
      for (const ChunkJob& job : jobs)
        LS_CHECK(Store(job, encoder.Encode(job.values, job.rows, job.chunk_rows, job.column->width)));
      return Ok();
    }
    for (std::size_t first = 0; first < jobs.size(); first += kBatch) {
      const std::size_t count = std::min(kBatch, jobs.size() - first);
      parallel(count, [&](std::size_t i) {
        thread_local ChunkEncoder own;
        ChunkJob& job = jobs[first + i];
        const std::span<const std::byte> stored = own.Encode(job.values, job.rows, job.chunk_rows, job.column->width);
        job.stored.assign(stored.begin(), stored.end());
      });
      for (std::size_t i = first; i < first + count; ++i) {
        LS_CHECK(Store(jobs[i], jobs[i].stored));
        jobs[i].stored = {};
      }
    }
    return Ok();
  }

  Status AppendTo(TableState& table, const std::vector<ColumnBytes>& columns, std::size_t rows) {
    std::vector<ChunkJob> jobs;
    std::vector<std::vector<std::byte>> completed;  // Chunks that were begun before.
    completed.reserve(columns.size());
    for (std::size_t i = 0; i < columns.size(); ++i) {
      Column& column = table.columns[i];
      const std::size_t chunk_bytes = kChunkRows * column.width;
      std::uint64_t chunk = table.rows / kChunkRows;
      const std::byte* data = columns[i].data;
      std::size_t bytes = rows * column.width;
      if (!column.pending.empty()) {
        const std::size_t take = std::min(bytes, chunk_bytes - column.pending.size());
        column.pending.insert(column.pending.end(), data, data + take);
        data += take;
        bytes -= take;
        if (column.pending.size() < chunk_bytes) continue;
        completed.push_back(std::exchange(column.pending, {}));
        jobs.push_back({&column, completed.back().data(), chunk++, kChunkRows, kChunkRows, {}});
      }
      for (; bytes >= chunk_bytes; data += chunk_bytes, bytes -= chunk_bytes)
        jobs.push_back({&column, data, chunk++, kChunkRows, kChunkRows, {}});
      column.pending.insert(column.pending.end(), data, data + bytes);
    }
    if (jobs.empty()) return Ok();
    if (!file.ok()) LS_CHECK(OpenHdf5());
    if (table.chunk_rows == 0) LS_CHECK(MakeDatasets(table, kChunkRows));
    return WriteChunks(jobs);
  }

  // A rank uses a quarter of the tables. Making a table costs libhdf5 some 300 us of CPU time, and with hundreds of
  // ranks to a node the empty ones took seconds at the end of the job.
  bool LeavesOut(const TableState& table) const { return table.rows == 0 && format == schema::kRankFileFormat; }

  // Last, partial chunks: stored at full size, padded with zeros, as HDF5 does.
  Status Flush() {
    for (auto& [name, table] : tables) {
      if (LeavesOut(table)) continue;
      if (table.chunk_rows == 0)
        LS_CHECK(
            MakeDatasets(table, table.rows == 0 ? kChunkRows : std::bit_ceil(std::max<std::size_t>(table.rows, 16))));
      std::vector<ChunkJob> jobs;
      for (Column& column : table.columns)
        if (!column.pending.empty())
          jobs.push_back(
              {&column, column.pending.data(), table.rows / kChunkRows, table.rows % kChunkRows, table.chunk_rows, {}});
      LS_CHECK(WriteChunks(jobs));
      for (Column& column : table.columns) column.pending = {};
    }
    return Ok();
  }

  // Writes the whole file, which is in memory yet.
  Status WriteWhole() {
    std::vector<WholeTable> whole;
    for (auto& [name, table] : tables) {
      if (LeavesOut(table)) continue;
      WholeTable& one = whole.emplace_back(WholeTable{&table.info, table.rows, {}});
      // The first column says how many rows there are. Texts and facts are read by programs of a few lines.
      const bool may_lack =
          format == schema::kRankFileFormat && !table.info.Is(schema::kTexts) && !table.info.Is(schema::kFacts);
      for (std::size_t i = 0; i < table.columns.size(); ++i) {
        WholeColumn column{&table.info.columns[i], table.columns[i].pending, {}};
        column.left_out = i > 0 && may_lack && IsUnknownThroughout(*column.info, column.values);
        one.columns.push_back(std::move(column));
      }
    }
    std::vector<WholeColumn*> long_ones;
    for (WholeTable& table : whole)
      for (WholeColumn& column : table.columns)
        if (!column.left_out && column.values.size() > kMostRawBytes) long_ones.push_back(&column);
    const auto compress = [&](std::size_t i) {
      thread_local ChunkEncoder own;
      WholeColumn& column = *long_ones[i];
      const std::size_t width = WidthOf(column.info->type), rows = column.values.size() / width;
      const std::span<const std::byte> stored = own.Encode(column.values.data(), rows, rows, width);
      column.deflated.assign(stored.begin(), stored.end());
    };
    if (parallel && long_ones.size() > 1)
      parallel(long_ones.size(), compress);
    else
      for (std::size_t i = 0; i < long_ones.size(); ++i) compress(i);
    for (const WholeColumn* column : long_ones)
      if (column->deflated.empty()) return Failed("cannot compress a chunk: out of memory");
    errno = 0;
    if (!WriteWholeFile(part_file.get(), NameForHdf5(), format, attributes, whole))
      return Failed(std::string("cannot write the file") +
                    (errno != 0 ? std::string(": ") + std::strerror(errno) : ""));
    return Ok();
  }

  Status WriteAttributes() {
    const Hdf5Lock lock;
    for (const auto& [name, value] : attributes)
      if (!(value.is_text ? WriteFixedTextAttribute(file.get(), name.c_str(), value.text)
                          : WriteIntAttribute(file.get(), name.c_str(), value.number)))
        return Failed("cannot write attribute " + name);
    return Ok();
  }

  // The end of a file that was begun through libhdf5.
  Status FinishHdf5() {
    LS_CHECK(Flush());
    LS_CHECK(WriteAttributes());
    const bool indexed = CollectIndex();
    if (!Close()) return Failed("cannot write the end of the file");
    for (const auto& [name, value] : attributes) index.AddAttribute(name, value);
    // Without it the file is read through libhdf5.
    if (indexed) (void)index.Append(part_file.get());
    return Ok();
  }

  // Collects all positions while libhdf5 has the file open. Returns false if the index is to be left out.
  bool CollectIndex() {
    const Hdf5Lock lock;
    for (const auto& [name, table] : tables) {
      if (LeavesOut(table)) continue;
      IndexedTable indexed{table.info.name, {}};
      for (std::size_t i = 0; i < table.columns.size(); ++i) {
        const schema::ColumnInfo& column = table.info.columns[i];
        IndexedColumn& entry =
            indexed.columns.emplace_back(IndexedColumn{column.name,
                                                       static_cast<std::uint8_t>(table.columns[i].width),
                                                       column.is_signed(),
                                                       table.rows,
                                                       table.chunk_rows,
                                                       {}});
        for (std::uint64_t chunk = 0; chunk < table.columns[i].chunks; ++chunk) {
          const hsize_t at = chunk * table.chunk_rows;
          haddr_t address = HADDR_UNDEF;
          hsize_t bytes = 0;
          unsigned skipped = 0;
          if (H5Dget_chunk_info_by_coord(table.columns[i].dataset.get(), &at, &skipped, &address, &bytes) < 0 ||
              address == HADDR_UNDEF || skipped != 0)
            return false;
          entry.chunks.push_back({address, bytes, 0});
        }
      }
      index.AddTable(indexed);
    }
    return true;
  }

  // Gives back libhdf5's status of the last close, which is when it writes.
  bool Close() {
    if (!file.ok() && !chunked.ok()) return true;
    const Hdf5Lock lock;
    tables.clear();
    const bool chunked_ok = chunked.Close() >= 0;
    return file.Close() >= 0 && chunked_ok;
  }
};

TableFileWriter::TableFileWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TableFileWriter::TableFileWriter(TableFileWriter&&) noexcept = default;
TableFileWriter& TableFileWriter::operator=(TableFileWriter&&) noexcept = default;
TableFileWriter::~TableFileWriter() = default;

Result<TableFileWriter> TableFileWriter::Create(const std::string& path, std::string_view format,
                                                RunParallel parallel) {
  auto impl = std::make_unique<Impl>();
  impl->parallel = std::move(parallel);
  impl->path = path;
  impl->format = format;
  impl->attributes[kFormatAttribute] = {true, 0, std::string(format)};
  // Removes files of writers that were killed. There are too many rank files for every agent to look for them, so
  // recovery does.
  if (format != schema::kRankFileFormat) RemoveDeadParts(path);
  impl->part_file = CreateBeside(path, 0644, &impl->part);
  if (!impl->part_file.open())
    return Error{ErrorCode::kIo, std::string("cannot create the file: ") + std::strerror(errno), path,
                 "choose a directory that can be written, with -o"};
  return TableFileWriter(std::move(impl));
}

Status TableFileWriter::AppendColumns(const schema::TableInfo& info, std::vector<ColumnBytes> columns,
                                      std::size_t rows) {
  std::vector<std::vector<std::byte>> filled;
  filled.reserve(columns.size());
  for (ColumnBytes& column : columns) {
    if (column.rows >= rows) continue;
    std::vector<std::byte>& whole = filled.emplace_back(rows * column.width);
    std::copy_n(column.data, column.rows * column.width, whole.data());
    FillUnknown(*column.info, whole.data() + column.rows * column.width, rows - column.rows);
    column.data = whole.data();
  }
  auto at = impl_->tables.find(info.name);
  if (at == impl_->tables.end()) at = impl_->AddTable(info);
  TableState& table = at->second;
  LS_CHECK(impl_->AppendTo(table, columns, rows));
  table.rows += rows;
  return Ok();
}

Status TableFileWriter::AddParts(const schema::TableInfo& info, const std::vector<TablePart>& parts) {
  const std::string name(info.name);
  hsize_t rows = 0;
  impl_->parts += name;
  for (const TablePart& part : parts) {
    rows += part.rows;
    impl_->parts += '\t' + part.file + ':' + std::to_string(part.rows) + ':' + std::to_string(part.digest);
  }
  impl_->parts += '\n';
  impl_->in_parts.insert(name);
  if (!impl_->file.ok()) LS_CHECK(impl_->OpenHdf5());
  const Hdf5Lock lock;
  const Hdf5Handle group = impl_->MakeGroup(name);
  if (!group.ok() || !WriteTextAttribute(group.get(), "description", info.description))
    return impl_->Failed("cannot make table " + name);
  const Hdf5Handle space(H5Screate_simple(1, &rows, nullptr));
  for (std::size_t i = 0; i < info.column_count; ++i) {
    const schema::ColumnInfo& column = info.columns[i];
    const std::string path = name + "/" + std::string(column.name);
    const Hdf5Handle creation(H5Pcreate(H5P_DATASET_CREATE));
    H5Pset_obj_track_times(creation.get(), false);
    hsize_t first = 0;
    for (const TablePart& part : parts) {
      const hsize_t count = part.rows;
      if (count == 0) continue;
      const Hdf5Handle source(H5Screate_simple(1, &count, nullptr)), target(H5Scopy(space.get()));
      if (H5Sselect_hyperslab(target.get(), H5S_SELECT_SET, &first, nullptr, &count, nullptr) < 0 ||
          H5Pset_virtual(creation.get(), target.get(), part.file.c_str(), ("/" + path).c_str(), source.get()) < 0)
        return impl_->Failed("cannot make column " + path);
      first += count;
    }
    const Hdf5Handle dataset(H5Dcreate2(group.get(), std::string(column.name).c_str(), FileType(column.type),
                                        space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT));
    if (!dataset.ok() || !WriteMeaning(dataset.get(), column, CodesOf(column)))
      return impl_->Failed("cannot make column " + path);
  }
  return Ok();
}

Status TableFileWriter::SetAttribute(std::string_view name, std::int64_t value) {
  impl_->attributes[std::string(name)] = {false, value, {}};
  return Ok();
}

Status TableFileWriter::SetAttribute(std::string_view name, std::string_view text) {
  if (text.size() > kMostFixedText) return impl_->Failed("cannot write attribute " + std::string(name));
  impl_->attributes[std::string(name)] = {true, 0, std::string(text)};
  return Ok();
}

Status TableFileWriter::Finish() {
  LS_CHECK(Write());
  return Publish({this, 1});
}

Status TableFileWriter::Write() {
  Impl& impl = *impl_;
  if (impl.failed) return impl.Failed("the file is incomplete after an earlier error");
  if (impl.format == schema::kTimelineFormat)
    for (const schema::TableInfo& info : schema::kTimelineTableInfos)
      if (!impl.tables.contains(info.name) && !impl.in_parts.contains(info.name)) impl.AddTable(info);
  if (!impl.parts.empty()) LS_CHECK(SetAttribute(kPartsAttribute, impl.parts));
  LS_CHECK(SetAttribute("complete", std::int64_t{1}));
  LS_CHECK(impl.file.ok() ? impl.FinishHdf5() : impl.WriteWhole());
  impl.tables.clear();
  return Ok();
}

Status TableFileWriter::Publish(std::span<TableFileWriter> writers) {
  // All on their way to the disk before any is waited for: then the journal is mostly written once.
  if (writers.size() > 1)
    for (const TableFileWriter& writer : writers)
      (void)::sync_file_range(writer.impl_->part_file.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
  const auto failed = [](Impl& impl, int error) {
    return impl.Failed(std::string("cannot finish the file: ") + std::strerror(error));
  };
  std::map<std::string, std::string> directories;  // Each with a file in it.
  std::optional<Error> error;
  std::size_t synced = 0;
  for (; synced < writers.size() && !error; ++synced)
    if (Impl& impl = *writers[synced].impl_; ::fsync(impl.part_file.get()) != 0) error = failed(impl, errno);
  if (error) --synced;
  for (const TableFileWriter& writer : writers.first(synced)) {
    Impl& impl = *writer.impl_;
    if (const int cause = MoveOver(impl.part, impl.path); cause != 0) {
      error = failed(impl, cause);
      break;
    }
    impl.part_file.Reset();
    directories.emplace(DirectoryOf(impl.path), impl.path);
  }
  for (const auto& [directory, file] : directories) SyncDirectoryOf(file);
  if (error) return *std::move(error);
  return Ok();
}

}  // namespace lockstep::trace
