#include "runtime/doctor/machine.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "runtime/agent/inject/elf_file.h"
#include "runtime/agent/inject/injection.h"

extern char** environ;

namespace lockstep::doctor {
namespace {

// Variables that a launcher around this process, or another run, sets, and that a job started here would misinterpret.
bool OfALauncher(const char* variable) {
  for (const char* prefix : {"OMPI_COMM", "OMPI_MCA_orte", "OMPI_MCA_ess", "OMPI_MCA_pmix", "OMPI_APP", "OMPI_FILE",
                             "OMPI_UNIVERSE", "OMPI_NUM", "OMPI_FIRST", "OMPI_ARGV", "OMPI_COMMAND", "PMIX_", "PMI_",
                             "LOCKSTEP_SEGMENT", "LOCKSTEP_OUTPUT", "LOCKSTEP_JSON", "LOCKSTEP_PROGRAM"})
    if (std::strncmp(variable, prefix, std::strlen(prefix)) == 0) return true;
  return false;
}

CommandOutput RunCommand(const std::vector<std::string>& words, int timeout_s) {
  CommandOutput output;
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) != 0) return output;
  std::vector<char*> arguments, variables;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  for (char** at = environ; at != nullptr && *at != nullptr; ++at)
    if (!OfALauncher(*at)) variables.push_back(*at);
  variables.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDERR_FILENO);
  // The command gets a process group of its own, so that what it starts ends with it.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // The command gets the signal dispositions of a job, whatever ours are.
  sigset_t usual;
  sigemptyset(&usual);
  sigaddset(&usual, SIGXFSZ);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, arguments[0], &actions, &attributes, arguments.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  ::close(pipe_fds[1]);
  if (error != 0) {
    ::close(pipe_fds[0]);
    output.text = std::strerror(error);
    return output;
  }
  output.started = true;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(timeout_s);
  std::array<char, 4096> buffer;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    pollfd wait{pipe_fds[0], POLLIN, 0};
    if (left <= 0 || ::poll(&wait, 1, static_cast<int>(left)) == 0) {
      output.timed_out = true;
      ::kill(-pid, SIGKILL);
      break;
    }
    const ssize_t n = ::read(pipe_fds[0], buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    if (output.text.size() < 1 << 16) output.text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  ::close(pipe_fds[0]);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  output.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

std::optional<std::uint64_t> Limit(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return std::nullopt;
  return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : static_cast<std::uint64_t>(limit.rlim_cur);
}

std::optional<ClockSync> ReadClockSync() {
  struct timex times {};
  const int state = ::adjtimex(&times);
  if (state < 0) return std::nullopt;  // Some containers refuse this call.
  return ClockSync{state != TIME_ERROR && (times.status & STA_UNSYNC) == 0, times.maxerror};
}

// Magic numbers of statfs(2) and of Lustre and GPFS's own headers.
std::string KindOf(long type) {
  switch (static_cast<unsigned long>(type) & 0xffffffffu) {
    case 0x01021994:
      return "tmpfs";
    case 0x6969:
      return "nfs";
    case 0x0bd00bd0:
      return "lustre";
    case 0x47504653:
      return "gpfs";
    case 0xff534d42:
    case 0xfe534d42:
      return "cifs";
    case 0x65735546:
      return "fuse";
    case 0x9fa0:
      return "proc";
    default:
      return "";
  }
}

std::optional<Space> SpaceOf(const std::string& directory) {
  struct statfs info {};
  if (::statfs(directory.c_str(), &info) != 0) return std::nullopt;
  const auto block = static_cast<std::uint64_t>(info.f_frsize != 0 ? info.f_frsize : info.f_bsize);
  Space space{info.f_bavail * block, info.f_blocks * block, KindOf(info.f_type)};
  // A tmpfs without a limit reports 0 of 0.
  if (space.kind == "tmpfs" && space.total_bytes == 0) space.free_bytes = space.total_bytes = UINT64_MAX / 2;
  return space;
}

}  // namespace

std::optional<std::string> Machine::Read(const std::string& path) const {
  std::ifstream file(Below(path), std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return std::nullopt;
  return text.str();
}

Machine ThisMachine() {
  Machine machine;
  machine.libraries = agent::FindLibraries;
  machine.find_library = agent::LocateLibrary;
  machine.find_program = agent::FindProgram;
  machine.run = RunCommand;
  machine.limit = Limit;
  machine.clock_sync = ReadClockSync;
  machine.space = SpaceOf;
  machine.superuser = [] { return ::geteuid() == 0; };
  return machine;
}

}  // namespace lockstep::doctor
