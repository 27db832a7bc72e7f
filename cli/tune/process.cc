#include "cli/tune/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "core/own_file.h"

namespace lockstep::cli {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPause{10};
// Agents that outlive their launcher write their files and end; a launcher that is asked to end ends its ranks first.
constexpr std::chrono::seconds kEndsByItself{5}, kEndsWhenAsked{10}, kLeftEndsWhenAsked{2};

volatile sig_atomic_t g_interrupted = 0;

double Seconds(steady_clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// Processes whose parent is this one.
std::vector<pid_t> Children() {
  std::vector<pid_t> children;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (!std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0; })) continue;
    const OwnedFd file = OpenPlain("/proc/" + name + "/stat", O_RDONLY);
    const std::string stat = file.open() ? ReadUpTo(file.get(), 0, 4096) : "";
    const std::size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos || name_end + 4 > stat.size()) continue;
    if (std::atol(stat.c_str() + name_end + 4) == ::getpid())  // ") S PARENT"
      children.push_back(static_cast<pid_t>(std::atol(name.c_str())));
  }
  return children;
}

// Waits for all children, at most so long. Returns whether there is none left.
bool Reap(std::chrono::seconds at_most) {
  const auto until = steady_clock::now() + at_most;
  for (;;) {
    const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
    if (pid < 0 && errno == ECHILD) return true;
    if (pid > 0) continue;
    if (steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(kPause);
  }
}

// What the job left: orphans, which this process has adopted.
void EndWhatIsLeft() {
  if (Reap(kEndsByItself)) return;
  for (const int signal : {SIGTERM, SIGKILL, SIGKILL, SIGKILL}) {  // Killed parents leave children of their own.
    for (const pid_t pid : Children()) ::kill(pid, signal);
    if (Reap(kLeftEndsWhenAsked)) return;
  }
}

}  // namespace

void AdoptJobs() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1UL);
  struct sigaction action {};
  action.sa_handler = [](int) { g_interrupted = 1; };
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

bool Interrupted() { return g_interrupted != 0; }

Result<ProcessEnd> RunJob(const std::vector<std::string>& words, const std::vector<std::string>& environment,
                          const std::string& output, double timeout_s) {
  std::vector<char*> argv, variables;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  for (const std::string& variable : environment) variables.push_back(const_cast<char*>(variable.c_str()));
  variables.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t usual;
  sigemptyset(&usual);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) sigaddset(&usual, signal);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  const auto begin = steady_clock::now();
  const int error = ::posix_spawnp(&pid, argv[0], &files, &attributes, argv.data(), variables.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0)
    return Error{error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, words[0] + ": " + std::strerror(error),
                 output, "check the command, and that files can be made there"};

  ProcessEnd end;
  int status = 0;
  struct rusage usage {};
  steady_clock::time_point asked{};
  bool killed = false;
  while (::wait4(pid, &status, WNOHANG, &usage) == 0) {
    const auto now = steady_clock::now();
    if (asked == steady_clock::time_point{}) {
      end.interrupted = Interrupted();
      end.timed_out = !end.interrupted && Seconds(now - begin) > timeout_s;
      if (end.interrupted || end.timed_out) {
        asked = now;
        ::kill(pid, SIGTERM);
      }
    } else if (!killed && now > asked + kEndsWhenAsked) {
      killed = true;
      ::kill(-pid, SIGKILL);
    }
    std::this_thread::sleep_for(kPause);
  }
  end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  end.peak_bytes = std::int64_t{usage.ru_maxrss} * 1024;
  EndWhatIsLeft();
  end.seconds = Seconds(steady_clock::now() - begin);
  return end;
}

}  // namespace lockstep::cli
