#pragma once
// The bytes of a dump, for all formats of dumps.

#include <cstdint>
#include <string>

#include "core/result.h"

namespace lockstep::ingest {

// kMalformed: it is larger than `most_bytes`; kUsage: it is not a file; kIo.
Result<std::string> ReadDumpFile(const std::string& path, std::uint64_t most_bytes);

}  // namespace lockstep::ingest
