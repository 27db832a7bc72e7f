#pragma once
// What stands at the root of an HDF5 file. Hdf5Lock held by whoever calls.

#include <functional>
#include <map>
#include <string>

#include "trace/file/file_index.h"
#include "trace/file/hdf5_access.h"

namespace lockstep::trace {

// The numbers and texts of fixed length among the first 64 attributes; see WriteTextAttribute for why no others.
std::map<std::string, StoredAttribute, std::less<>> ReadAttributes(hid_t file);
// `name` as a text of variable length, as files have it that somebody else made after the documentation; "" if it is
// none.
std::string ReadVariableText(hid_t object, const char* name);

}  // namespace lockstep::trace
