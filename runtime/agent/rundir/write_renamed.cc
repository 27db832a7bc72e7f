#include "runtime/agent/rundir/write_renamed.h"

#include <cstring>

#include "core/own_file.h"

namespace lockstep::agent {

std::string WriteRenamed(const std::string& path, std::string_view bytes) {
  const int error = ReplaceFile(path, bytes, 0666);
  return error == 0 ? "" : std::strerror(error);
}

}  // namespace lockstep::agent
