#pragma once
// Imports that commands make of traces automatically, kept beside the traces or in the user's cache.

#include <string>
#include <vector>

#include "cli/input/imported.h"
#include "core/result.h"

namespace lockstep::cli {

// The run directory of an import of these traces in their present state: an existing one, or one made now. Any number
// of commands may call this at once. It stays as long as this process runs; the next command removes imports that no
// process uses.
Result<std::string> ImportIntoCache(const std::vector<std::string>& given, const ReadFlags& flags);

}  // namespace lockstep::cli
