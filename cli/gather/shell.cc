#include "cli/gather/shell.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/own_file.h"

extern char** environ;

namespace lockstep::cli {
namespace {

constexpr std::size_t kMostErrors = 64 << 10;
constexpr std::size_t kShellPieceBytes = 256 << 10;

// Files in memory: for what a program reads, or says, that nobody reads at the same time.
OwnedFd MemoryFile() { return OwnedFd(::memfd_create("lockstep", MFD_CLOEXEC)); }

Error NotStarted(const std::string& program, int error) {
  return {error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, program + ": " + std::strerror(error), "",
          "install it, or name another remote shell with --rsh"};
}

// Starts a program with these descriptors; returns errno. What this process ignores (SIGPIPE) has its usual effect
// there.
int Spawn(const std::vector<std::string>& words, int input, int output, int errors, pid_t* pid) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, errors, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t usual;
  sigemptyset(&usual);
  sigaddset(&usual, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const int error = ::posix_spawnp(pid, argv[0], &files, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

// Waits for a program; `errors` is what its standard error went to.
ShellEnd EndOf(pid_t pid, int errors) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  ShellEnd end;
  end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  std::string said = ReadUpTo(errors, 0, kMostErrors);
  do {
    while (!said.empty() && std::strchr("\r\n \t", said.back()) != nullptr) said.pop_back();
    const std::size_t at = said.rfind('\n') + 1;
    end.last_line = said.substr(at);
    said.resize(at);
    // GNU tar's last words, after the reason.
  } while (end.last_line.starts_with("tar: Exiting with") ||
           end.last_line.starts_with("tar: Error is not recoverable"));
  return end;
}

}  // namespace

Result<ShellEnd> RunShell(const std::vector<std::string>& words, const std::string& script,
                          const std::function<bool(std::string_view)>& take) {
  const OwnedFd input = MemoryFile(), errors = MemoryFile();
  std::array<int, 2> ends{-1, -1};
  if (!input.open() || !errors.open() || WriteAll(input.get(), script) != 0 || ::lseek(input.get(), 0, SEEK_SET) != 0 ||
      ::pipe2(ends.data(), O_CLOEXEC) != 0)
    return NotStarted(words[0], errno);
  OwnedFd output(ends[0]), theirs(ends[1]);
  pid_t pid = -1;
  if (const int error = Spawn(words, input.get(), theirs.get(), errors.get(), &pid); error != 0)
    return NotStarted(words[0], error);
  theirs.Reset();
  std::vector<char> piece(kShellPieceBytes);
  for (;;) {
    const ssize_t got = ::read(output.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    if (!take(std::string_view(piece.data(), static_cast<std::size_t>(got)))) {
      ::kill(pid, SIGTERM);
      break;
    }
  }
  output.Reset();
  return EndOf(pid, errors.get());
}

Result<Consumer> Consumer::Start(const std::vector<std::string>& words) {
  OwnedFd errors = MemoryFile();
  std::array<int, 2> ends{-1, -1};
  if (!errors.open() || ::pipe2(ends.data(), O_CLOEXEC) != 0) return NotStarted(words[0], errno);
  const OwnedFd theirs(ends[0]);
  OwnedFd ours(ends[1]);
  pid_t pid = -1;
  if (const int error = Spawn(words, theirs.get(), errors.get(), errors.get(), &pid); error != 0)
    return NotStarted(words[0], error);
  return Consumer(pid, std::move(ours), std::move(errors));
}

Consumer::Consumer(Consumer&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), input_(std::move(other.input_)), errors_(std::move(other.errors_)) {}

Consumer::~Consumer() {
  if (pid_ > 0) Finish();
}

bool Consumer::Write(std::string_view data) { return WriteAll(input_.get(), data) == 0; }

ShellEnd Consumer::Finish() {
  input_.Reset();
  return EndOf(std::exchange(pid_, -1), errors_.get());
}

}  // namespace lockstep::cli
