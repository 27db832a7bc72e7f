#pragma once
// Files that commands leave behind.

#include <string>

#include "core/result.h"

namespace lockstep::cli {

// Whole or not at all: readers never see half a file. kIo names the reason; `hint` is what to try.
Status WriteWhole(const std::string& path, const std::string& text, const std::string& hint);

}  // namespace lockstep::cli
