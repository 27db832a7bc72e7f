#pragma once
// Finds and reads dumps, whichever format of formats.def they have.

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "ingest/progress_format.h"

namespace lockstep::ingest {

struct FoundDumps {
  const ProgressFormat* format = nullptr;
  std::vector<DumpFile> files;  // By name; numbers in names count as numbers.
};

// By format, in the order of formats.def, none without a file. Files that are named one by one are taken for dumps,
// those of directories (two levels) are looked at, and taken also if they are named as those that are dumps. kNotFound:
// an argument does not exist, or there is no dump.
Result<std::vector<FoundDumps>> FindDumps(const std::vector<std::string>& arguments);

// The dumps in a file or directory; null: none. For the commands that take traces, so that they can say who reads it.
const ProgressFormat* HoldsDumps(const std::string& path);

}  // namespace lockstep::ingest
