// Reads HDF5 columns in parallel.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "core/own_file.h"
#include "trace/file/chunk_codec.h"
#include "trace/file/column_index.h"
#include "trace/file/digest.h"
#include "trace/file/file_index.h"
#include "trace/file/hdf5_attributes.h"
#include "trace/file/table_file.h"

namespace lockstep::trace {
namespace {

// "lockstep.rank/1" -> "lockstep.rank", 1.
bool SplitFormat(std::string_view format, std::string_view& name, unsigned& version) {
  const std::size_t slash = format.rfind('/');
  if (slash == std::string_view::npos || format.size() - slash > 6) return false;
  name = format.substr(0, slash);
  version = 0;
  for (const char c : format.substr(slash + 1)) {
    if (c < '0' || c > '9') return false;
    version = version * 10 + static_cast<unsigned>(c - '0');
  }
  return version != 0;
}

// Opening a pipe would block.
std::shared_ptr<const OwnedFd> OpenForReading(const std::string& path) {
  return std::make_shared<const OwnedFd>(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
}

// Identifies the file that was opened first: by now another file may have the name, and its data must not be read with
// the positions of the first.
struct Identity {
  dev_t device = 0;
  ino_t number = 0;
  std::int64_t size = -1, modified_ns = 0;
  bool operator==(const Identity&) const = default;
};

Identity IdentityOf(const struct stat& info) {
  return {info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec};
}

constexpr char kGone[] = "the file can no longer be opened, or another lies there now";
constexpr char kDamagedHint[] = "copy the file again; what is intact in it is still used by merge and analyze";

}  // namespace

struct TableFile::Impl {
  std::string path, format;
  Identity identity;
  std::uint64_t file_bytes = 0;
  bool userblock = false;
  std::map<std::string, StoredAttribute, std::less<>> attributes;
  std::optional<FileIndex> index;
  mutable std::mutex mutex;  // Guards `tables`.
  mutable std::map<std::string, StoredTable, std::less<>> tables;
  mutable std::shared_ptr<const OwnedFd> held;  // Guarded by `mutex`.

  std::shared_ptr<const OwnedFd> OpenFile() const {
    {
      const std::lock_guard guard(mutex);
      if (held != nullptr) return held;
    }
    auto file = OpenForReading(path);
    struct stat info {};
    return ::fstat(file->get(), &info) == 0 && IdentityOf(info) == identity ? file : nullptr;
  }
  // libhdf5 opens by name: it has opened the right file if the name still belongs to that file afterwards.
  Hdf5Handle OpenThroughHdf5() const {
    Hdf5Handle file = OpenHdf5ForReading(path);
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0 || IdentityOf(info) != identity) return Hdf5Handle(-1);
    return file;
  }

  // Tables that lie in other files.
  std::map<std::string, std::vector<TablePart>, std::less<>> parts;
  mutable std::mutex parts_mutex;  // Protects `opened`.
  mutable std::map<std::string, std::shared_ptr<const TableFile>, std::less<>> opened;

  Status ParseParts();
  Result<std::shared_ptr<const TableFile>> OpenPart(const std::string& file) const;
  Status ReadParts(std::string_view table, const schema::ColumnInfo& column, std::uint64_t first, std::uint64_t count,
                   std::byte* out) const;

  // The format's name and version are ours.
  Status CheckFormat() const;

  Error Malformed(std::string what) const { return {ErrorCode::kMalformed, std::move(what), path, kDamagedHint}; }

  std::span<const schema::TableInfo> Infos() const {
    if (format == schema::kRankFileFormat) return schema::kRankTableInfos;
    return schema::kTimelineTableInfos;
  }

  // Reads the positions on first use of a table.
  const StoredTable& Table(std::string_view name) const {
    const std::lock_guard guard(mutex);
    const auto at = tables.find(name);
    if (at != tables.end()) return at->second;
    for (const schema::TableInfo& info : Infos())
      if (info.name == name) LoadTables({&info, 1});
    return tables[std::string(name)];
  }
  // Null if the file lacks it.
  const StoredColumn* Column(const StoredTable& table, std::string_view name, const schema::ColumnInfo& wanted) const {
    for (const schema::TableInfo& info : Infos()) {
      if (info.name != name) continue;
      for (std::size_t i = 0; i < info.column_count && i < table.columns.size(); ++i)
        if (info.columns[i].name == wanted.name) return table.columns[i].present ? &table.columns[i] : nullptr;
    }
    return nullptr;
  }
  // `mutex` held.
  void LoadTables(std::span<const schema::TableInfo> infos) const {
    if (index) {
      for (const schema::TableInfo& info : infos)
        if (!tables.contains(info.name)) tables[std::string(info.name)] = index->Table(info);
      return;
    }
    const Hdf5Lock lock;
    const Hdf5Handle file = OpenThroughHdf5();
    for (const schema::TableInfo& info : infos) {
      if (tables.contains(info.name)) continue;
      StoredTable& table = tables[std::string(info.name)];
      if (!file.ok()) {
        table.problem = kGone;
        continue;
      }
      table = IndexTable(file.get(), info, file_bytes);
      // Addresses in a file with a user block count from its end, which is left to libhdf5.
      if (userblock)
        for (StoredColumn& column : table.columns) column.direct = false;
    }
  }

  Status ReadDirect(const StoredColumn& column, std::uint64_t first, std::uint64_t count, std::byte* out,
                    const std::string& name) const {
    const std::shared_ptr<const OwnedFd> file = OpenFile();
    if (file == nullptr) return Malformed(kGone);
    thread_local ChunkDecoder decoder;
    thread_local std::vector<std::byte> stored;
    const std::uint64_t end = first + count;
    for (std::uint64_t row = first; row < end;) {
      const std::uint64_t number = row / column.chunk_rows, inside = row % column.chunk_rows;
      const std::uint64_t rows = std::min(end - row, column.chunk_rows - inside);
      const StoredChunk& chunk = column.chunks[number];
      if (chunk.offset == 0) {
        std::memset(out, 0, rows * column.width);
      } else {
        if (stored.size() < chunk.bytes) stored.resize(chunk.bytes);
        const auto applied = [&](int filter) { return filter >= 0 && (chunk.skipped_filters >> filter & 1) == 0; };
        const ChunkForm form{applied(column.deflate_filter), applied(column.shuffle_filter),
                             static_cast<std::size_t>(column.chunk_rows), column.width};
        if (!ReadAt(file->get(), chunk.offset, stored.data(), chunk.bytes))
          return Malformed(name + ": chunk " + std::to_string(number) + ": cut off");
        if (!decoder.Decode({stored.data(), chunk.bytes}, form, inside, rows, out))
          return Malformed(name + ": chunk " + std::to_string(number) + ": bad deflate stream");
      }
      out += rows * column.width;
      row += rows;
    }
    return Ok();
  }

  // Reads everything that libhdf5 can read: contiguous, compact, other filters.
  Status ReadThroughHdf5(std::string_view table, const schema::ColumnInfo& info, std::uint64_t first,
                         std::uint64_t count, std::byte* out, const std::string& name) const {
    const Hdf5Lock lock;
    const Hdf5Handle file = OpenThroughHdf5();
    const Hdf5Handle group(file.ok() ? H5Gopen2(file.get(), std::string(table).c_str(), H5P_DEFAULT) : -1);
    const Hdf5Handle dataset(group.ok() ? H5Dopen2(group.get(), std::string(info.name).c_str(), H5P_DEFAULT) : -1);
    const Hdf5Handle space(dataset.ok() ? H5Dget_space(dataset.get()) : -1);
    const hsize_t start = first, length = count;
    const Hdf5Handle memory(H5Screate_simple(1, &length, nullptr));
    if (!space.ok() || H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, &start, nullptr, &length, nullptr) < 0 ||
        H5Dread(dataset.get(), NativeType(info.type), memory.get(), space.get(), H5P_DEFAULT, out) < 0)
      return Malformed(name + ": libhdf5 cannot read it");
    return Ok();
  }

  static hid_t NativeType(schema::ColumnType type) {
    switch (type) {
      case schema::ColumnType::kU8:
        return H5T_NATIVE_UINT8;
      case schema::ColumnType::kU16:
        return H5T_NATIVE_UINT16;
      case schema::ColumnType::kU32:
        return H5T_NATIVE_UINT32;
      case schema::ColumnType::kU64:
        return H5T_NATIVE_UINT64;
      case schema::ColumnType::kI32:
        return H5T_NATIVE_INT32;
      case schema::ColumnType::kI64:
        return H5T_NATIVE_INT64;
    }
    return H5I_INVALID_HID;
  }
};

TableFile::TableFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TableFile::TableFile(TableFile&&) noexcept = default;
TableFile& TableFile::operator=(TableFile&&) noexcept = default;
TableFile::~TableFile() = default;

Result<TableFile> TableFile::Open(const std::string& path) {
  auto file = OpenForReading(path);
  struct stat info {};
  if (!file->open() || ::fstat(file->get(), &info) != 0)
    return Error{errno == EACCES ? ErrorCode::kIo : ErrorCode::kNotFound,
                 std::string("cannot read the file: ") + std::strerror(errno), path, "check the path and permissions"};
  // Opening a pipe would block.
  if (!S_ISREG(info.st_mode))
    return Error{ErrorCode::kMalformed, "not a regular file", path, "remove it, or copy the file again"};
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->file_bytes = static_cast<std::uint64_t>(info.st_size);
  impl->identity = IdentityOf(info);
  impl->index = FileIndex::Load(file->get(), impl->file_bytes);
  if (impl->index) {
    impl->held = std::move(file);
    impl->index->ForEachAttribute(
        [&](std::string_view name, const StoredAttribute& value) { impl->attributes[std::string(name)] = value; });
    impl->format = impl->attributes[kFormatAttribute].text;
  } else {
    const Hdf5Lock lock;
    const Hdf5Handle hdf5 = impl->OpenThroughHdf5();
    if (!hdf5.ok())
      return Error{ErrorCode::kMalformed,
                   H5Fis_hdf5(path.c_str()) > 0 ? "the HDF5 file is cut short or damaged" : "not an HDF5 file", path,
                   "copy the file again from where it was recorded; a spool beside it is used instead"};
    const Hdf5Handle creation(H5Fget_create_plist(hdf5.get()));
    hsize_t userblock = 0;
    if (creation.ok()) H5Pget_userblock(creation.get(), &userblock);
    impl->userblock = userblock != 0;
    impl->attributes = ReadAttributes(hdf5.get());
    // Only texts of fixed length: those of variable length are in a global heap, in a damaged one of which HDF5 1.10.8
    // searches for ever (H5HG__cache_heap_deserialize).
    impl->format = impl->attributes[impl->attributes.contains(kFormatAttribute) ? kFormatAttribute : "format"].text;
  }
  LS_CHECK(impl->CheckFormat());
  LS_CHECK(impl->ParseParts());
  return TableFile(std::move(impl));
}

Status TableFile::Impl::CheckFormat() const {
  std::string_view name, known_name;
  unsigned version = 0, known_version = 0;
  if (!SplitFormat(format, name, version))
    return Error{
        ErrorCode::kMalformed, "an HDF5 file, but not one of Lockstep's", path,
        "name a rank file (ranks/rank-00000.h5) or timeline.h5; in one that another program wrote, `format` is "
        "a text of fixed length (docs/trace-format.md)"};
  for (const std::string_view known : {schema::kRankFileFormat, schema::kTimelineFormat}) {
    SplitFormat(known, known_name, known_version);
    if (name != known_name) continue;
    if (version > known_version)
      return Error{ErrorCode::kUnsupported,
                   "written by a newer Lockstep: format " + format + ", this one reads up to " + std::string(known),
                   path, "read it with the version that wrote it, or a later one"};
    return Ok();
  }
  return Error{ErrorCode::kMalformed, "unknown format " + format, path,
               "name a rank file (ranks/rank-00000.h5) or timeline.h5"};
}

Status TableFile::Impl::ParseParts() {
  const auto text = attributes.find(kPartsAttribute);
  if (text == attributes.end() || !text->second.is_text) return Ok();
  std::string_view rest = text->second.text;
  const auto take = [](std::string_view& from, char until) {
    const std::size_t at = std::min(from.find(until), from.size());
    const std::string_view taken = from.substr(0, at);
    from.remove_prefix(std::min(at + 1, from.size()));
    return taken;
  };
  const auto number = [](std::string_view digits, std::uint64_t& value) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size();
  };
  constexpr std::uint64_t kMostRows = std::uint64_t{1} << 40;
  while (!rest.empty()) {
    std::string_view line = take(rest, '\n');
    std::vector<TablePart>& of_table = parts[std::string(take(line, '\t'))];
    while (!line.empty()) {
      std::string_view entry = take(line, '\t');
      TablePart part{std::string(take(entry, ':')), 0, 0};
      // Parts must be below the file's directory.
      if (part.file.empty() || part.file[0] == '/' || part.file.find("..") != std::string::npos ||
          !number(take(entry, ':'), part.rows) || part.rows > kMostRows || !number(entry, part.digest))
        return Malformed("the file's list of parts is inconsistent");
      of_table.push_back(std::move(part));
    }
  }
  return Ok();
}

// HDF5 reads a missing part as zeros without an error, so each part is compared with what its writer recorded about it.
Result<std::shared_ptr<const TableFile>> TableFile::Impl::OpenPart(const std::string& file) const {
  const std::lock_guard guard(parts_mutex);
  if (const auto at = opened.find(file); at != opened.end()) return at->second;
  const std::size_t slash = path.rfind('/');
  const std::string where = (slash == std::string::npos ? std::string() : path.substr(0, slash + 1)) + file;
  const auto wrong = [&](ErrorCode code, const std::string& what) {
    return Error{code, what, where, "bring that file back as it was, or run lockstep merge again"};
  };
  Result<TableFile> part = TableFile::Open(where);
  if (!part.ok())
    return wrong(part.error().code,
                 "a part of the timeline " + std::string(part.error().code == ErrorCode::kNotFound
                                                             ? "is missing"
                                                             : "cannot be read: " + part.error().what));
  if (!part.value().impl_->parts.empty()) return wrong(ErrorCode::kMalformed, "a part that has parts itself");
  Result<std::vector<Digest>> digests = part.value().Digests();
  if (!digests.ok()) return wrong(digests.error().code, "a part of the timeline is damaged: " + digests.error().what);
  for (const auto& entry : parts)
    for (const TablePart& expected : entry.second) {
      const std::string& table = entry.first;
      if (expected.file != file) continue;
      const auto same = std::any_of(digests.value().begin(), digests.value().end(), [&](const Digest& digest) {
        return digest.table == table && digest.rows == expected.rows && digest.value == expected.digest;
      });
      if (!same)
        return wrong(ErrorCode::kMalformed,
                     "a part of the timeline holds other rows of " + table + " than were written");
    }
  auto shared = std::make_shared<const TableFile>(std::move(part).value());
  opened.emplace(file, shared);
  return shared;
}

Status TableFile::Impl::ReadParts(std::string_view table, const schema::ColumnInfo& column, std::uint64_t first,
                                  std::uint64_t count, std::byte* out) const {
  std::uint64_t begin = 0;
  for (const TablePart& part : parts.find(table)->second) {
    const std::uint64_t from = std::max(first, begin), to = std::min(first + count, begin + part.rows);
    if (from < to) {
      LS_TRY(const std::shared_ptr<const TableFile> file, OpenPart(part.file));
      LS_CHECK(file->ReadColumn(table, column, from - begin, to - from, out));
      out += (to - from) * WidthOf(column.type);
    }
    begin += part.rows;
  }
  return Ok();
}

bool TableFile::indexed() const { return impl_->index.has_value(); }

void TableFile::Release() const {
  const std::lock_guard guard(impl_->mutex);
  impl_->held.reset();
  if (impl_->index) impl_->tables.clear();
}

void TableFile::Hold() const {
  auto file = impl_->OpenFile();
  const std::lock_guard guard(impl_->mutex);
  if (file != nullptr) impl_->held = std::move(file);
}

std::string_view TableFile::format() const { return impl_->format; }
bool TableFile::complete() const { return Attribute("complete", std::int64_t{0}) == 1; }

std::int64_t TableFile::Attribute(std::string_view name, std::int64_t fallback) const {
  const auto at = impl_->attributes.find(name);
  return at == impl_->attributes.end() || at->second.is_text ? fallback : at->second.number;
}
std::string TableFile::Attribute(std::string_view name, std::string_view fallback) const {
  const auto at = impl_->attributes.find(name);
  return std::string(at == impl_->attributes.end() || !at->second.is_text ? fallback : at->second.text);
}

void TableFile::LookAtAll() const {
  const std::lock_guard guard(impl_->mutex);
  impl_->LoadTables(impl_->Infos());
}

std::uint64_t TableFile::Rows(std::string_view table) const {
  const auto at = impl_->parts.find(table);
  if (at == impl_->parts.end()) return impl_->Table(table).rows;
  std::uint64_t rows = 0;
  for (const TablePart& part : at->second) rows += part.rows;
  return rows;
}

std::vector<std::string> TableFile::MissingColumns() const {
  std::vector<std::string> missing;
  for (const schema::TableInfo& info : impl_->Infos()) {
    // Columns of a table in parts are checked in the parts.
    if (impl_->parts.contains(info.name)) continue;
    const StoredTable& table = impl_->Table(info.name);
    if (table.rows == 0) continue;
    for (std::size_t i = 0; i < table.columns.size(); ++i)
      if (!table.columns[i].present && !table.columns[i].left_out)
        missing.push_back(std::string(info.name) + "/" + std::string(info.columns[i].name));
  }
  return missing;
}

Status TableFile::ReadColumn(std::string_view table_name, const schema::ColumnInfo& info, std::uint64_t first,
                             std::uint64_t count, std::byte* out) const {
  if (impl_->parts.contains(table_name)) return impl_->ReadParts(table_name, info, first, count, out);
  const StoredTable& table = impl_->Table(table_name);
  const std::string name = std::string(table_name) + "/" + std::string(info.name);
  const std::size_t width = WidthOf(info.type);
  if (!table.problem.empty()) return impl_->Malformed(std::string(table_name) + ": " + table.problem);
  if (count == 0) return Ok();
  const StoredColumn* const stored = impl_->Column(table, table_name, info);
  if (stored == nullptr) {
    FillUnknown(info, out, count);
    return Ok();
  }
  const StoredColumn& column = *stored;
  if (!column.integer) return impl_->Malformed(name + ": not a column of integers");
  if (column.width != width || column.is_signed != info.is_signed())
    return impl_->Malformed(name + ": type is " + (column.is_signed ? "i" : "u") + std::to_string(column.width * 8) +
                            ", expected " + std::string(NameOf(info.type)));
  if (first > column.rows || count > column.rows - first) return impl_->Malformed(name + ": has too few rows");
  if (column.direct) return impl_->ReadDirect(column, first, count, out, name);
  return impl_->ReadThroughHdf5(table_name, info, first, count, out, name);
}

Result<std::vector<TableFile::Digest>> TableFile::Digests() const {
  LookAtAll();
  std::vector<Digest> digests;
  std::vector<std::byte> buffer(kChunkRows * sizeof(std::uint64_t));
  const auto digest_table = [&](const schema::TableInfo& table) -> Status {
    const std::uint64_t rows = Rows(table.name);
    ValueDigest values;
    std::vector<std::uint64_t> columns;
    for (std::size_t i = 0; i < table.column_count; ++i) {
      const schema::ColumnInfo& column = table.columns[i];
      ValueDigest of_column;
      for (std::uint64_t first = 0; first < rows; first += kChunkRows) {
        const std::uint64_t count = std::min<std::uint64_t>(rows - first, kChunkRows);
        LS_CHECK(ReadColumn(table.name, column, first, count, buffer.data()));
        values.Add(buffer.data(), count * WidthOf(column.type));
        of_column.Add(buffer.data(), count * WidthOf(column.type));
      }
      columns.push_back(of_column.value());
    }
    digests.push_back({std::string(table.name), rows, values.value(), std::move(columns)});
    return Ok();
  };
  for (const schema::TableInfo& table : impl_->Infos()) LS_CHECK(digest_table(table));
  return digests;
}

}  // namespace lockstep::trace
