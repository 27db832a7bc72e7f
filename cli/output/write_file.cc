#include "cli/output/write_file.h"

#include <system_error>

#include "trace/file/part_file.h"

namespace lockstep::cli {

Status WriteWhole(const std::string& path, const std::string& text, const std::string& hint) {
  trace::PartFile file;
  int error = file.Open(path);
  if (error == 0) error = file.Write(text);
  if (error == 0) error = file.Publish();
  if (error == 0) return Ok();
  return Error{ErrorCode::kIo, "cannot write the file: " + std::generic_category().message(error), path, hint};
}

Status WriteOrShow(const std::string& path, const std::string& text, bool (*show)(std::string_view),
                   const std::string& hint) {
  if (path != "-") return WriteWhole(path, text, hint);
  if (show(text)) return Ok();
  return Error{ErrorCode::kIo, "standard output cannot be written", "", "name a file instead of -"};
}

}  // namespace lockstep::cli
