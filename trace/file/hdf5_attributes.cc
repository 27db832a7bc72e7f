#include "trace/file/hdf5_attributes.h"

#include <cstring>
#include <utility>

namespace lockstep::trace {
namespace {

bool ReadAttribute(hid_t attribute, StoredAttribute& value) {
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

}  // namespace

std::map<std::string, StoredAttribute, std::less<>> ReadAttributes(hid_t file) {
  std::map<std::string, StoredAttribute, std::less<>> attributes;
  H5O_info_t object{};
  H5Oget_info2(file, &object, H5O_INFO_NUM_ATTRS);
  for (hsize_t i = 0; i < object.num_attrs && i < 64; ++i) {
    const Hdf5Handle attribute(H5Aopen_by_idx(file, ".", H5_INDEX_NAME, H5_ITER_NATIVE, i, H5P_DEFAULT, H5P_DEFAULT));
    char name[256];
    if (!attribute.ok() || H5Aget_name(attribute.get(), sizeof name, name) <= 0) continue;
    StoredAttribute value;
    if (ReadAttribute(attribute.get(), value)) attributes[name] = std::move(value);
  }
  return attributes;
}

}  // namespace lockstep::trace
