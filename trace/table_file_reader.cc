// HDF5 columns -> values, in parallel.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <span>

#include "trace/chunk_codec.h"
#include "trace/column_index.h"
#include "trace/digest.h"
#include "trace/table_file.h"

namespace lockstep {
namespace {

struct AttributeValue {
  bool is_text = false;
  std::int64_t number = 0;
  std::string text;
};

// Integers and text of fixed length; see WriteTextAttribute for why no others. Hdf5Lock held.
bool ReadAttribute(hid_t attribute, AttributeValue& value) {
  const Hdf5Handle type(H5Aget_type(attribute)), space(H5Aget_space(attribute));
  if (!type.ok() || !space.ok() || H5Sget_simple_extent_npoints(space.get()) != 1) return false;
  const H5T_class_t kind = H5Tget_class(type.get());
  if (kind == H5T_INTEGER) return H5Aread(attribute, H5T_NATIVE_INT64, &value.number) >= 0;
  if (kind != H5T_STRING || H5Tis_variable_str(type.get()) != 0) return false;
  value.is_text = true;
  const std::size_t size = H5Tget_size(type.get());
  if (size == 0 || size > 65536) return false;
  value.text.resize(size);
  if (H5Aread(attribute, type.get(), value.text.data()) < 0) return false;
  value.text.resize(std::strlen(value.text.c_str()));
  return true;
}

// `format` of a file that somebody else made after the documentation. Hdf5Lock held.
std::string ReadVariableText(hid_t object, const char* name) {
  const Hdf5Handle attribute(H5Aopen(object, name, H5P_DEFAULT));
  const Hdf5Handle type(attribute.ok() ? H5Aget_type(attribute.get()) : -1);
  const Hdf5Handle space(attribute.ok() ? H5Aget_space(attribute.get()) : -1);
  if (!type.ok() || H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) <= 0 || !space.ok() ||
      H5Sget_simple_extent_npoints(space.get()) != 1)
    return {};
  char* text = nullptr;
  if (H5Aread(attribute.get(), type.get(), &text) < 0 || text == nullptr) return {};
  std::string value(text);
  H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, &text);
  return value;
}

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

class File {
 public:
  explicit File(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  bool ok() const { return fd_ >= 0; }
  bool ReadAt(std::uint64_t offset, std::byte* out, std::size_t bytes) const {
    while (bytes != 0) {
      const ssize_t got = ::pread(fd_, out, bytes, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      out += got;
      offset += static_cast<std::uint64_t>(got);
      bytes -= static_cast<std::size_t>(got);
    }
    return true;
  }

 private:
  int fd_;
};

constexpr char kDamagedHint[] = "copy the file again; what is intact in it is still used by merge and analyze";

}  // namespace

struct TableFile::Impl {
  std::string path, format;
  std::uint64_t file_bytes = 0;
  bool userblock = false;
  std::map<std::string, AttributeValue, std::less<>> attributes;
  mutable std::mutex mutex;  // Guards `tables` and `missing`.
  mutable std::map<std::string, StoredTable, std::less<>> tables;
  mutable std::set<std::string> missing;

  Error Malformed(std::string what) const { return {ErrorCode::kMalformed, std::move(what), path, kDamagedHint}; }

  std::span<const schema::TableInfo> Infos() const {
    if (format == schema::kRankFileFormat) return schema::kRankTableInfos;
    return schema::kTimelineTableInfos;
  }

  // Looks at the file on first use of a table.
  const StoredTable& Table(std::string_view name) const {
    const std::lock_guard guard(mutex);
    const auto at = tables.find(name);
    if (at != tables.end()) return at->second;
    for (const schema::TableInfo& info : Infos())
      if (info.name == name) LoadTables({&info, 1});
    return tables[std::string(name)];
  }
  // `mutex` held.
  void LoadTables(std::span<const schema::TableInfo> infos) const {
    const Hdf5Lock lock;
    const Hdf5Handle file = OpenHdf5ForReading(path);
    for (const schema::TableInfo& info : infos) {
      if (tables.contains(info.name)) continue;
      StoredTable& table = tables[std::string(info.name)];
      if (!file.ok()) {
        table.problem = "the file can no longer be opened";
        continue;
      }
      table = IndexTable(file.get(), info, file_bytes);
      // Addresses in a file with a user block count from its end: libhdf5's business.
      if (userblock)
        for (auto& [column_name, column] : table.columns) column.direct = false;
    }
  }

  Status ReadDirect(const StoredColumn& column, std::uint64_t first, std::uint64_t count, std::byte* out,
                    const std::string& name) const {
    const File file(path);
    if (!file.ok()) return Malformed("the file can no longer be opened");
    thread_local ChunkDecoder decoder;
    thread_local std::vector<std::byte> stored;
    const std::uint64_t end = first + count;
    for (std::uint64_t row = first; row < end;) {
      const std::uint64_t index = row / column.chunk_rows, inside = row % column.chunk_rows;
      const std::uint64_t rows = std::min(end - row, column.chunk_rows - inside);
      const StoredChunk& chunk = column.chunks[index];
      if (chunk.offset == 0) {
        std::memset(out, 0, rows * column.width);
      } else {
        if (stored.size() < chunk.bytes) stored.resize(chunk.bytes);
        const auto applied = [&](int filter) { return filter >= 0 && (chunk.skipped_filters >> filter & 1) == 0; };
        const ChunkForm form{applied(column.deflate_filter), applied(column.shuffle_filter),
                             static_cast<std::size_t>(column.chunk_rows), column.width};
        if (!file.ReadAt(chunk.offset, stored.data(), chunk.bytes))
          return Malformed(name + ": chunk " + std::to_string(index) + ": cut off");
        if (!decoder.Decode({stored.data(), chunk.bytes}, form, inside, rows, out))
          return Malformed(name + ": chunk " + std::to_string(index) + ": bad deflate stream");
      }
      out += rows * column.width;
      row += rows;
    }
    return Ok();
  }

  // Whatever libhdf5 can read: contiguous, compact, other filters.
  Status ReadThroughHdf5(std::string_view table, const schema::ColumnInfo& info, std::uint64_t first,
                         std::uint64_t count, std::byte* out, const std::string& name) const {
    const Hdf5Lock lock;
    const Hdf5Handle file = OpenHdf5ForReading(path);
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
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    return Error{errno == EACCES ? ErrorCode::kIo : ErrorCode::kNotFound,
                 std::string("cannot read the file: ") + std::strerror(errno), path, "check the path and permissions"};
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->file_bytes = static_cast<std::uint64_t>(info.st_size);
  {
    const Hdf5Lock lock;
    const Hdf5Handle file = OpenHdf5ForReading(path);
    if (!file.ok())
      return Error{ErrorCode::kMalformed,
                   H5Fis_hdf5(path.c_str()) > 0 ? "the HDF5 file is cut short or damaged" : "not an HDF5 file", path,
                   "lockstep info lists what can be read; a spool beside it is used instead"};
    const Hdf5Handle creation(H5Fget_create_plist(file.get()));
    hsize_t userblock = 0;
    if (creation.ok()) H5Pget_userblock(creation.get(), &userblock);
    impl->userblock = userblock != 0;
    H5O_info_t object{};
    H5Oget_info2(file.get(), &object, H5O_INFO_NUM_ATTRS);
    for (hsize_t i = 0; i < object.num_attrs && i < 64; ++i) {
      const Hdf5Handle attribute(
          H5Aopen_by_idx(file.get(), ".", H5_INDEX_NAME, H5_ITER_NATIVE, i, H5P_DEFAULT, H5P_DEFAULT));
      char name[256];
      if (!attribute.ok() || H5Aget_name(attribute.get(), sizeof name, name) <= 0) continue;
      AttributeValue value;
      if (ReadAttribute(attribute.get(), value)) impl->attributes[name] = std::move(value);
    }
    if (impl->attributes.contains(kFormatAttribute))
      impl->format = impl->attributes[kFormatAttribute].text;
    else if (impl->attributes.contains("format"))
      impl->format = impl->attributes["format"].text;
    else
      impl->format = ReadVariableText(file.get(), "format");
  }
  std::string_view name, known_name;
  unsigned version = 0, known_version = 0;
  if (!SplitFormat(impl->format, name, version))
    return Error{ErrorCode::kMalformed, "an HDF5 file, but not one of Lockstep's", path,
                 "name a rank file (ranks/rank-00000.h5) or timeline.h5"};
  for (const std::string_view known : {schema::kRankFileFormat, schema::kTimelineFormat}) {
    SplitFormat(known, known_name, known_version);
    if (name != known_name) continue;
    if (version > known_version)
      return Error{
          ErrorCode::kUnsupported,
          "written by a newer Lockstep: format " + impl->format + ", this one reads up to " + std::string(known), path,
          "read it with the version that wrote it, or a later one"};
    return TableFile(std::move(impl));
  }
  return Error{ErrorCode::kMalformed, "unknown format " + impl->format, path,
               "name a rank file (ranks/rank-00000.h5) or timeline.h5"};
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

std::uint64_t TableFile::Rows(std::string_view table) const { return impl_->Table(table).rows; }

std::uint64_t TableFile::missing_columns() const {
  const std::lock_guard guard(impl_->mutex);
  return impl_->missing.size();
}

Status TableFile::ReadColumn(std::string_view table_name, const schema::ColumnInfo& info, std::uint64_t first,
                             std::uint64_t count, std::byte* out) const {
  const StoredTable& table = impl_->Table(table_name);
  const std::string name = std::string(table_name) + "/" + std::string(info.name);
  const std::size_t width = WidthOf(info.type);
  if (!table.problem.empty()) return impl_->Malformed(std::string(table_name) + ": " + table.problem);
  if (count == 0) return Ok();
  const auto at = table.columns.find(info.name);
  if (at == table.columns.end()) {
    std::memset(out, 0, count * width);
    const std::lock_guard guard(impl_->mutex);
    impl_->missing.insert(name);
    return Ok();
  }
  const StoredColumn& column = at->second;
  const bool want_signed = info.type == schema::ColumnType::kI32 || info.type == schema::ColumnType::kI64;
  if (!column.integer) return impl_->Malformed(name + ": not a column of integers");
  if (column.width != width || column.is_signed != want_signed)
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
    for (std::size_t i = 0; i < table.column_count; ++i) {
      const schema::ColumnInfo& column = table.columns[i];
      for (std::uint64_t first = 0; first < rows; first += kChunkRows) {
        const std::uint64_t count = std::min<std::uint64_t>(rows - first, kChunkRows);
        LS_CHECK(ReadColumn(table.name, column, first, count, buffer.data()));
        values.Add(buffer.data(), count * WidthOf(column.type));
      }
    }
    digests.push_back({std::string(table.name), rows, values.value()});
    return Ok();
  };
  for (const schema::TableInfo& table : impl_->Infos()) LS_CHECK(digest_table(table));
  return digests;
}

}  // namespace lockstep
