#pragma once
// Imports that commands make of traces by themselves, kept beside the traces or in the user's cache.

#include <string>
#include <vector>

#include "cli/input/imported.h"
#include "core/result.h"

namespace lockstep::cli {

// The run directory of an import of these traces, as they are now: one that was made before, or made now. Any number of
// commands may ask at once. It stays as long as this process lives; what nobody uses any more is removed by the next.
Result<std::string> ImportIntoCache(const std::vector<std::string>& given, const ReadFlags& flags);

}  // namespace lockstep::cli
