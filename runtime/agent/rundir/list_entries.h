#pragma once
// Lists in one text, as environment variables hold them.

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep::agent {

// Entries of a list such as PATH (":") or LD_PRELOAD (" :"), in order; empty ones are left out.
inline std::vector<std::string> ListEntries(const std::string& list, const char* separators) {
  std::vector<std::string> entries;
  for (std::size_t at = 0; (at = list.find_first_not_of(separators, at)) != std::string::npos;) {
    const std::size_t end = std::min(list.find_first_of(separators, at), list.size());
    entries.push_back(list.substr(at, end - at));
    at = end;
  }
  return entries;
}

}  // namespace lockstep::agent
