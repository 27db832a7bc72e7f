#include "runtime/agent/rundir/say.h"

#include <unistd.h>

#include <string>

#include "core/printed.h"

namespace lockstep::agent {

void Say(std::string_view text) {
  std::string line = "lockstep: ";
  line += Printed(text);
  line += '\n';
  const ssize_t ignored = ::write(STDERR_FILENO, line.data(), line.size());
  static_cast<void>(ignored);
}

}  // namespace lockstep::agent
