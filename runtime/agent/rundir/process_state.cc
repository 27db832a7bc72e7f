#include "runtime/agent/rundir/process_state.h"

#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include "core/process_stat.h"

namespace lockstep::agent {

std::string PidNamespace() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? std::to_string(info.st_ino) : std::string();
}

std::string ProcessStart(long pid) {
  std::istringstream fields(ProcessStatAfterName(pid));
  std::string field;
  for (int i = 3; i <= 22; ++i)  // The start is field 22 of proc(5).
    if (!(fields >> field)) return "";
  return field;
}

std::string HostName() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? std::string(name) : std::string();
}

bool ProcessRuns(long pid) {
  if (pid <= 0 || (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH)) return false;
  const std::string stat = ProcessStatAfterName(pid);
  if (stat.empty()) return true;  // The process exists, but its files are hidden (hidepid).
  const char state = stat[0];
  return state != 'Z' && state != 'X';
}

bool ProcessMaps(long pid, const std::string& path) {
  if (!ProcessRuns(pid)) return false;
  std::ifstream file("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(file, line);)
    if (line.ends_with(path)) return true;
  return false;
}

}  // namespace lockstep::agent
