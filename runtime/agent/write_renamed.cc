#include "runtime/agent/write_renamed.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace lockstep {

std::string WriteRenamed(const std::string& path, std::string_view bytes) {
  const std::string part = path + ".part";
  const int fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return std::strerror(errno);
  const ssize_t written = ::write(fd, bytes.data(), bytes.size());
  int error = written < 0 ? errno : static_cast<std::size_t>(written) < bytes.size() ? ENOSPC : 0;
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(part.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return "";
  ::unlink(part.c_str());
  return std::strerror(error);
}

}  // namespace lockstep
