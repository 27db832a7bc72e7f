#include "ingest/dump_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "core/file_lock.h"
#include "core/own_file.h"

namespace lockstep::ingest {

Result<std::string> ReadDumpFile(const std::string& path, std::uint64_t most_bytes) {
  // Opening a pipe would wait for a writer.
  const OwnedFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file.open() || ::fstat(file.get(), &info) != 0)
    return Error{ErrorCode::kIo, std::generic_category().message(errno), "", "make it readable"};
  if (!S_ISREG(info.st_mode)) return Error{ErrorCode::kUsage, "this is not a file", "", "name the dumps' files"};
  if (static_cast<std::uint64_t>(info.st_size) > most_bytes)
    return Error{ErrorCode::kMalformed, "the file is larger than any dump", "", "take a dump that its program wrote"};
  int error = 0;
  std::string bytes = ReadUpTo(file.get(), 0, static_cast<std::size_t>(info.st_size), &error);
  if (error != 0) return Error{ErrorCode::kIo, std::generic_category().message(error), "", "copy it again"};
  return bytes;
}

}  // namespace lockstep::ingest
