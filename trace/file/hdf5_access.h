#pragma once
// The only access to libhdf5 in this program: its lock, its handles, its error printing switched off. Debian's build is
// not thread-safe.

#include <hdf5.h>

#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "core/schema.h"
#include "trace/file/column_types.h"

namespace lockstep::trace {

// Hold it for every call into libhdf5, closing handles included. Also makes sure
// that libhdf5 prints nothing on stderr.
class Hdf5Lock {
 public:
  Hdf5Lock();

 private:
  std::unique_lock<std::mutex> lock_;
};

// Owns one handle. Must be closed or destroyed under Hdf5Lock.
class Hdf5Handle {
 public:
  Hdf5Handle() = default;
  explicit Hdf5Handle(hid_t id) : id_(id) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    if (this != &other) {
      Close();
      id_ = std::exchange(other.id_, H5I_INVALID_HID);
    }
    return *this;
  }
  ~Hdf5Handle() { Close(); }
  herr_t Close() {
    if (id_ < 0) return 0;
    return H5Idec_ref(std::exchange(id_, H5I_INVALID_HID));
  }
  hid_t get() const { return id_; }
  bool ok() const { return id_ >= 0; }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

// flock fails on many cluster file systems, and libhdf5 then refuses the file. Ours
// have one writer each, under another name.
void DoNotLockFile(hid_t access_properties);

// The root attribute that our reader uses: `format` again, as text of fixed length.
inline constexpr char kFormatAttribute[] = "lockstep_format";

// Root attribute that names the files in which tables lie: a line per table, "TABLE\tFILE:ROWS:DIGEST\t...".
inline constexpr char kPartsAttribute[] = "parts";

// Little-endian on disk, whatever the machine.
hid_t FileType(schema::ColumnType type);

// Scalar attributes for people: UTF-8 of variable length, which h5py gives as str.
// Our reader does not look at them: such text lies in a global heap, the one
// structure of the file without a checksum, and libhdf5 1.10.8 crashes on a
// damaged one (H5HG_read, found by flipping bytes).
bool WriteTextAttribute(hid_t object, const char* name, std::string_view text);
// Of fixed length, inside the checksummed object header: safe to read back.
bool WriteFixedTextAttribute(hid_t object, const char* name, std::string_view text);
// What a column's attributes say of it; `codes`: CodesOf (schema_text.h), or a part of it.
bool WriteMeaning(hid_t dataset, const schema::ColumnInfo& column, std::string_view codes);
bool WriteIntAttribute(hid_t object, const char* name, std::int64_t value);

}  // namespace lockstep::trace
