#pragma once
// Reads the root attributes of an HDF5 file. The caller holds Hdf5Lock.

#include <functional>
#include <map>
#include <string>

#include "trace/file/file_index.h"
#include "trace/file/hdf5_access.h"

namespace lockstep::trace {

// The numbers and texts of fixed length among the first 64 attributes; see WriteTextAttribute for why no others.
std::map<std::string, StoredAttribute, std::less<>> ReadAttributes(hid_t file);

}  // namespace lockstep::trace
