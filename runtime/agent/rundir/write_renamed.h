#pragma once
// Small files that others may read at any time.

#include <string>
#include <string_view>

namespace lockstep::agent {

// Written under a name of its own and renamed: readers see the file of before or this one, whole. "", or why not; then
// the file of before is as it was.
std::string WriteRenamed(const std::string& path, std::string_view bytes);

}  // namespace lockstep::agent
