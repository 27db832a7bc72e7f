#pragma once
// Files that commands leave behind.

#include <string>
#include <string_view>

#include "cli/output/out.h"
#include "core/result.h"

namespace lockstep::cli {

// Whole or not at all: readers never see half a file. kIo names the reason; `hint` is what to try.
Status WriteWhole(const std::string& path, const std::string& text, const std::string& hint);

// The same where "-" is standard output, on which `show` puts it.
Status WriteOrShow(const std::string& path, const std::string& text, bool (*show)(std::string_view),
                   const std::string& hint = "name a file that can be written");

// A command's JSON as it is written. Names hold any bytes: what is no UTF-8 is replaced.
template <typename Json>
std::string JsonText(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::cli
