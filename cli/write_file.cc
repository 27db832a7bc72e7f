#include "cli/write_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "core/own_file.h"

namespace lockstep::cli {
namespace {

// A device or a pipe (/dev/null, a shell's >(...)) is written to; giving a file its name would take it away.
bool IsNoFile(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

int WriteInto(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return errno;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int error = written ? 0 : errno;
  return std::fclose(file) != 0 && error == 0 ? errno : error;
}

}  // namespace

Status WriteWhole(const std::string& path, const std::string& text, const std::string& hint) {
  const int error = IsNoFile(path) ? WriteInto(path, text) : ReplaceFile(path, text, 0666);
  if (error == 0) return Ok();
  return Error{ErrorCode::kIo, "cannot write the file: " + std::generic_category().message(error), path, hint};
}

}  // namespace lockstep::cli
