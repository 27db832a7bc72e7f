#include "runtime/agent/slot/exec.h"

#include <unistd.h>

#include <cerrno>

namespace lockstep::agent {

using launch::LaunchSource;

int ExecAs(LaunchSource launcher, const std::string& path, char* const argv[], char* const envp[]) {
  const bool with_shell = launcher == LaunchSource::kNone || launcher == LaunchSource::kPmi;
  if (with_shell || path.empty())
    ::execvpe(argv[0], argv, envp);  // Finds the reason, too, where there is no such program.
  else
    ::execve(path.c_str(), argv, envp);
  return errno;
}

int RefusalCode(LaunchSource launcher, const std::string& command, int error) {
  const bool absent = error == ENOENT || error == ENOTDIR;
  switch (launcher) {
    case LaunchSource::kOpenMpi:  // Measured with 4.1.4.
      if (command.find('/') == std::string::npos) return absent ? 134 : 131;
      return ::access(command.c_str(), X_OK) == 0 ? 131 : 132;
    case LaunchSource::kPmi:  // MPICH 4.0.2.
      return 255;
    case LaunchSource::kSlurm:  // slurmstepd ends a task whose execve() failed with errno (22.05, task.c).
      return error;
    case LaunchSource::kTorchrun:
    case LaunchSource::kNone:
      break;
  }
  return absent ? 127 : 126;  // POSIX, of shells.
}

}  // namespace lockstep::agent
