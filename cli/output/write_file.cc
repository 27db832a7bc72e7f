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

}  // namespace lockstep::cli
