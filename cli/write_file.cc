#include "cli/write_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

namespace lockstep::cli {

Status WriteWhole(const std::string& path, const std::string& text, const std::string& hint) {
  const std::string part = path + ".part";
  const auto failed = [&] {
    const std::string reason = std::generic_category().message(errno);
    ::unlink(part.c_str());
    return Error{ErrorCode::kIo, "cannot write the file: " + reason, path, hint};
  };
  std::FILE* file = std::fopen(part.c_str(), "we");
  if (file == nullptr) return failed();
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) return failed();
  if (std::rename(part.c_str(), path.c_str()) != 0) return failed();
  return Ok();
}

}  // namespace lockstep::cli
