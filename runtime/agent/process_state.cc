#include "runtime/agent/process_state.h"

#include <signal.h>

#include <cerrno>
#include <fstream>

namespace lockstep {

bool ProcessRuns(long pid) {
  if (pid <= 0 || (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH)) return false;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return true;  // Hidden from us (hidepid), but there.
  // "pid (name) state": the name may hold anything.
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= line.size()) return true;
  const char state = line[name_end + 2];
  return state != 'Z' && state != 'X';
}

bool ProcessMaps(long pid, const std::string& path) {
  if (!ProcessRuns(pid)) return false;
  std::ifstream file("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(file, line);)
    if (line.ends_with(path)) return true;
  return false;
}

}  // namespace lockstep
