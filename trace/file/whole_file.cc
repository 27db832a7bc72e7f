#include "trace/file/whole_file.h"

#include <sys/stat.h>

#include <cstring>
#include <unordered_set>
#include <utility>

#include "core/own_file.h"
#include "core/version.h"
#include "trace/file/column_types.h"
#include "trace/file/hdf5_access.h"
#include "trace/file/left_out.h"
#include "trace/file/schema_text.h"

namespace lockstep::trace {
namespace {

// Longer lists of codes name only those that occur: all functions of MPI would be half of a small file.
constexpr std::size_t kMostCodesBytes = 1024;

std::string CodesToName(const WholeColumn& column) {
  std::string all = CodesOf(*column.info);
  if (all.size() <= kMostCodesBytes) return all;
  const std::size_t width = WidthOf(column.info->type);
  std::unordered_set<std::int64_t> occurring;
  for (std::size_t at = 0; at + width <= column.values.size(); at += width) {
    std::int64_t code = 0;  // Codes are not negative.
    std::memcpy(&code, column.values.data() + at, width);
    occurring.insert(code);
  }
  return CodesOf(*column.info, [&](std::int64_t code) { return occurring.contains(code); });
}

// Links and attributes stay in the headers, which are small and have checksums; libhdf5 would put more than eight into
// heaps, and a damaged name there is a table that is not found.
constexpr unsigned kMostLinks = 1000, kMostAttributes = 1000;

void KeepInHeader(const Hdf5Handle& creation, bool group) {
  // No times, so that the same tables give the same file.
  H5Pset_obj_track_times(creation.get(), false);
  H5Pset_attr_phase_change(creation.get(), kMostAttributes, 0);
  if (group) H5Pset_link_phase_change(creation.get(), kMostLinks, 0);
}

struct Creation {
  Creation()
      : group(H5Pcreate(H5P_GROUP_CREATE)),
        compact(H5Pcreate(H5P_DATASET_CREATE)),
        chunked(H5Pcreate(H5P_DATASET_CREATE)) {
    KeepInHeader(group, true);
    H5Pset_layout(compact.get(), H5D_COMPACT);
    H5Pset_shuffle(chunked.get());
    H5Pset_deflate(chunked.get(), 1);
    for (const Hdf5Handle* each : {&compact, &chunked}) {
      KeepInHeader(*each, false);
      H5Pset_fill_time(each->get(), H5D_FILL_TIME_NEVER);
    }
  }
  Hdf5Handle group, compact, chunked;
};

// A file that libhdf5 makes in memory and writes when it is closed. (H5Fget_file_image would need no file, but 1.10.8
// gives an image whose superblock has a wrong checksum.)
Hdf5Handle FileInMemory(const std::string& name) {
  constexpr std::size_t kGrowBytes = 64 << 10;
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS)), creation(H5Pcreate(H5P_FILE_CREATE));
  H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110);
  H5Pset_fapl_core(access.get(), kGrowBytes, true);
  DoNotLockFile(access.get());
  // What libhdf5 sets apart for metadata and values to come: nothing comes after this.
  constexpr hsize_t kApartBytes = 256;
  H5Pset_meta_block_size(access.get(), kApartBytes);
  H5Pset_small_data_block_size(access.get(), kApartBytes);
  KeepInHeader(creation, true);
  return Hdf5Handle(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()));
}

class Composer {
 public:
  explicit Composer(const std::string& name) : file_(FileInMemory(name)) {}

  bool Make(std::string_view format, const std::map<std::string, StoredAttribute>& attributes,
            const std::vector<WholeTable>& tables) {
    if (!file_.ok() || !WriteTextAttribute(file_.get(), "format", format) ||
        !WriteTextAttribute(file_.get(), "lockstep_version", LOCKSTEP_VERSION))
      return false;
    for (const WholeTable& table : tables)
      if (!MakeTable(table)) return false;
    for (const auto& [name, value] : attributes) {
      if (!(value.is_text ? WriteFixedTextAttribute(file_.get(), name.c_str(), value.text)
                          : WriteIntAttribute(file_.get(), name.c_str(), value.number)))
        return false;
      index_.AddAttribute(name, value);
    }
    return true;
  }

  // After Make. `fd`: the file.
  bool Finish(int fd) {
    struct stat info {};
    if (file_.Close() < 0 || ::fstat(fd, &info) != 0) return false;
    std::string bytes(static_cast<std::size_t>(info.st_size), '\0');
    // Without the index the file is read through libhdf5.
    if (ReadAt(fd, 0, bytes.data(), bytes.size()) && FindValues(bytes)) (void)index_.Append(fd);
    return true;
  }

 private:
  struct Indexed {
    const WholeTable* table;
    SmallTable columns;
  };

  bool FindValues(std::string_view file) {
    for (Indexed& table : tables_) {
      for (std::size_t i = 0; i < table.columns.columns.size(); ++i) {
        SmallColumn& entry = table.columns.columns[i];
        if (entry.raw && !Find(file, table.table->columns[i].values, entry)) return false;
      }
      index_.AddTable(table.columns);
    }
    return true;
  }

  // libhdf5 does not tell where in a header values are. Bytes that are equal to them serve as well, wherever they lie:
  // all of the file that the index refers to in this way is under its checksum.
  bool Find(std::string_view file, std::span<const std::byte> values, SmallColumn& entry) {
    const std::string_view wanted(reinterpret_cast<const char*>(values.data()), values.size());
    std::size_t at = file.find(wanted, searched_);
    if (at == std::string::npos) at = file.find(wanted);
    if (at == std::string::npos || at == 0) return false;
    entry.offset = searched_ = at;
    entry.bytes = values.size();
    return true;
  }

  bool MakeTable(const WholeTable& table) {
    const Hdf5Handle group(H5Gcreate2(file_.get(), std::string(table.info->name).c_str(), H5P_DEFAULT,
                                      creation_.group.get(), H5P_DEFAULT));
    if (!group.ok() || !WriteTextAttribute(group.get(), "description", table.info->description)) return false;
    const hsize_t rows = table.rows;
    const Hdf5Handle space(H5Screate_simple(1, &rows, nullptr));
    if (rows > 0 && H5Pset_chunk(creation_.chunked.get(), 1, &rows) < 0) return false;
    Indexed& indexed = tables_.emplace_back(Indexed{&table, {table.info->name, static_cast<std::uint32_t>(rows), {}}});
    std::string left_out;
    for (const WholeColumn& column : table.columns) {
      SmallColumn& entry = indexed.columns.columns.emplace_back();
      entry.name = column.info->name;
      entry.width = static_cast<std::uint8_t>(WidthOf(column.info->type));
      entry.is_signed = column.info->is_signed();
      entry.left_out = column.left_out;
      if (column.left_out)
        left_out += LeftOutLine(*column.info);
      else if (!MakeColumn(group.get(), space.get(), column, entry))
        return false;
    }
    return left_out.empty() || WriteFixedTextAttribute(group.get(), kLeftOutAttribute, left_out);
  }

  bool MakeColumn(hid_t group, hid_t space, const WholeColumn& column, SmallColumn& entry) const {
    const hid_t type = FileType(column.info->type);
    const bool chunked = !column.deflated.empty(), empty = column.values.empty();
    const hid_t creation = empty ? H5P_DEFAULT : chunked ? creation_.chunked.get() : creation_.compact.get();
    const Hdf5Handle dataset(
        H5Dcreate2(group, std::string(column.info->name).c_str(), type, space, H5P_DEFAULT, creation, H5P_DEFAULT));
    if (!dataset.ok() || !WriteMeaning(dataset.get(), *column.info, CodesToName(column))) return false;
    if (empty) return true;
    if (!chunked) {
      entry.raw = true;
      return H5Dwrite(dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, column.values.data()) >= 0;
    }
    const hsize_t begin = 0;
    hsize_t bytes = 0;
    haddr_t address = HADDR_UNDEF;
    unsigned skipped = 0;
    if (H5Dwrite_chunk(dataset.get(), H5P_DEFAULT, 0, &begin, column.deflated.size(), column.deflated.data()) < 0 ||
        H5Dget_chunk_info_by_coord(dataset.get(), &begin, &skipped, &address, &bytes) < 0 || address == HADDR_UNDEF ||
        skipped != 0)
      return false;
    entry.offset = address;
    entry.bytes = bytes;
    return true;
  }

  const Creation creation_;
  Hdf5Handle file_;
  std::vector<Indexed> tables_;
  FileIndex index_;
  std::size_t searched_ = 0;
};

}  // namespace

bool IsUnknownThroughout(const schema::ColumnInfo& column, std::span<const std::byte> values) {
  const std::size_t width = WidthOf(column.type);
  if (values.size() < width) return false;
  std::byte unknown[8];
  FillUnknown(column, unknown, 1);
  return std::memcmp(values.data(), unknown, width) == 0 &&
         std::memcmp(values.data(), values.data() + width, values.size() - width) == 0;
}

bool WriteWholeFile(int fd, const std::string& name, std::string_view format,
                    const std::map<std::string, StoredAttribute>& attributes, const std::vector<WholeTable>& tables) {
  const Hdf5Lock lock;
  Composer composer(name);
  return composer.Make(format, attributes, tables) && composer.Finish(fd);
}

}  // namespace lockstep::trace
