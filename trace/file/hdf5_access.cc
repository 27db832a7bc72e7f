#include "trace/file/hdf5_access.h"

#include <cstring>

#include "trace/file/schema_text.h"

namespace lockstep::trace {
namespace {

std::mutex& Hdf5Mutex() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

Hdf5Lock::Hdf5Lock() : lock_(Hdf5Mutex()) {
  // Per thread: a thread-safe libhdf5 keeps an error stack, and its printing, for each.
  static thread_local const bool quiet = [] {
    // Files are closed where they are used. HDF5 1.10.8 would try at exit to write again what could not be written
    // (disk full, ulimit -f), and crash.
    H5dont_atexit();
    H5open();
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    return true;
  }();
  (void)quiet;
}

void DoNotLockFile(hid_t access_properties) {
#if H5_VERSION_GE(1, 10, 7)
  H5Pset_file_locking(access_properties, false, true);
#else
  (void)access_properties;  // With older versions HDF5_USE_FILE_LOCKING=FALSE has to be set instead.
#endif
}

hid_t FileType(schema::ColumnType type) {
  switch (type) {
    case schema::ColumnType::kU8:
      return H5T_STD_U8LE;
    case schema::ColumnType::kU16:
      return H5T_STD_U16LE;
    case schema::ColumnType::kU32:
      return H5T_STD_U32LE;
    case schema::ColumnType::kU64:
      return H5T_STD_U64LE;
    case schema::ColumnType::kI32:
      return H5T_STD_I32LE;
    case schema::ColumnType::kI64:
      return H5T_STD_I64LE;
  }
  return H5I_INVALID_HID;
}

void FillUnknown(const schema::ColumnInfo& column, std::byte* out, std::uint64_t count) {
  const std::int64_t unknown = column.unknown();
  const std::size_t width = WidthOf(column.type);
  for (std::uint64_t i = 0; i < count; ++i) std::memcpy(out + i * width, &unknown, width);  // Little endian.
}

std::string_view NameOf(schema::ColumnType type) {
  switch (type) {
    case schema::ColumnType::kU8:
      return "u8";
    case schema::ColumnType::kU16:
      return "u16";
    case schema::ColumnType::kU32:
      return "u32";
    case schema::ColumnType::kU64:
      return "u64";
    case schema::ColumnType::kI32:
      return "i32";
    case schema::ColumnType::kI64:
      return "i64";
  }
  return "unknown";
}

bool WriteTextAttribute(hid_t object, const char* name, std::string_view text) {
  // Kept open, because making and copying them costs more than the attribute itself.
  static const hid_t type = [] {
    const hid_t made = H5Tcopy(H5T_C_S1);
    H5Tset_size(made, H5T_VARIABLE);
    H5Tset_cset(made, H5T_CSET_UTF8);
    return made;
  }();
  static const hid_t scalar = H5Screate(H5S_SCALAR);
  const Hdf5Handle attribute(H5Acreate2(object, name, type, scalar, H5P_DEFAULT, H5P_DEFAULT));
  const std::string copy(text);
  const char* value = copy.c_str();
  return attribute.ok() && H5Awrite(attribute.get(), type, &value) >= 0;
}

bool WriteFixedTextAttribute(hid_t object, const char* name, std::string_view text) {
  const Hdf5Handle type(H5Tcopy(H5T_C_S1)), scalar(H5Screate(H5S_SCALAR));
  std::string copy(text);
  if (copy.empty()) copy.push_back('\0');  // HDF5 has no type of size 0.
  if (H5Tset_size(type.get(), copy.size()) < 0 || H5Tset_cset(type.get(), H5T_CSET_UTF8) < 0 ||
      H5Tset_strpad(type.get(), H5T_STR_NULLPAD) < 0)
    return false;
  const Hdf5Handle attribute(H5Acreate2(object, name, type.get(), scalar.get(), H5P_DEFAULT, H5P_DEFAULT));
  return attribute.ok() && H5Awrite(attribute.get(), type.get(), copy.data()) >= 0;
}

bool WriteMeaning(hid_t dataset, const schema::ColumnInfo& column, std::string_view codes) {
  const std::string_view clock = ClockNameOf(column);
  return WriteTextAttribute(dataset, "unit", column.unit) &&
         WriteTextAttribute(dataset, "description", DescriptionOf(column)) &&
         (codes.empty() || WriteTextAttribute(dataset, "codes", codes)) &&
         (clock.empty() || WriteTextAttribute(dataset, "clock", clock));
}

bool WriteIntAttribute(hid_t object, const char* name, std::int64_t value) {
  static const hid_t scalar = H5Screate(H5S_SCALAR);
  Hdf5Handle attribute(H5Aopen(object, name, H5P_DEFAULT));
  if (!attribute.ok())
    attribute = Hdf5Handle(H5Acreate2(object, name, H5T_STD_I64LE, scalar, H5P_DEFAULT, H5P_DEFAULT));
  return attribute.ok() && H5Awrite(attribute.get(), H5T_NATIVE_INT64, &value) >= 0;
}

}  // namespace lockstep::trace
