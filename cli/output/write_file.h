#pragma once
// Writes the files that commands make.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "cli/output/out.h"
#include "core/result.h"

namespace lockstep::cli {

// Keys stay in the order in which they are set.
using Json = nlohmann::ordered_json;

// Writes the file whole or not at all: readers never see half a file. kIo contains the reason; `hint` is the suggestion
// for the user.
Status WriteWhole(const std::string& path, const std::string& text, const std::string& hint);

// The same, except that "-" means standard output, to which `show` writes it.
Status WriteOrShow(const std::string& path, const std::string& text, bool (*show)(std::string_view),
                   const std::string& hint = "name a file that can be written");

// Serialises a command's JSON. Names may contain any bytes: those that are not UTF-8 are replaced.
template <typename Document>
std::string JsonText(const Document& json) {
  return json.dump(2, ' ', false, Document::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::cli
