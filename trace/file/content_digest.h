#pragma once
// A single number for the content of a file.

#include <cstdint>

#include "core/result.h"
#include "trace/file/table_file.h"

namespace lockstep::trace {

// A digest of all tables: texts count as texts, whatever their numbers in `strings`; the origin of the data does not
// count (names of rank files, the merge's mark of its inputs). Equal for equal results, however many threads,
// processes, chunks or files made them.
Result<std::uint64_t> ContentDigest(const TableFile& file);

}  // namespace lockstep::trace
