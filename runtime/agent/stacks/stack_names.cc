#include "runtime/agent/stacks/stack_names.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>

#include "core/event_clock.h"
#include "core/own_file.h"
#include "runtime/agent/stacks/stack_request.h"

namespace lockstep::agent {
namespace {

constexpr int kMostFailures = 3;
// The first answer reads symbols of gigabytes of libraries, at idle priority.
constexpr std::int64_t kLongestNamesNs = 120'000'000'000;
constexpr std::size_t kMostAnswer = std::size_t{16} << 20;

}  // namespace

bool StackNames::Start() {
  if (process_ > 0) return true;
  if (program_.empty() || failures_ >= kMostFailures) return false;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  OwnedFd theirs(ends[1]);
  socket_ = OwnedFd(ends[0]);
  file_ = OwnedFd(::memfd_create("lockstep-stacks", MFD_CLOEXEC));
  if (!file_.open() || ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK) != 0) return false;
  const pid_t parent = ::getpid();
  process_ = ::fork();
  if (process_ != 0) return process_ > 0;
  restore_signals_();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  // It works for some tenths of a second in all. At 19 it would get none of a core that ranks poll on, and nothing
  // would have a name.
  ::setpriority(PRIO_PROCESS, 0, 5);
  constexpr int kWhoProcess = 1, kIdleClass = 3 << 13;  // ioprio_set(2)
  ::syscall(SYS_ioprio_set, kWhoProcess, 0, kIdleClass);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  // A copy first: what is moved may lie where something else is to be.
  const int socket = ::fcntl(theirs.get(), F_DUPFD, kRequestFile + 1);
  const int file = ::fcntl(file_.get(), F_DUPFD, kRequestFile + 1);
  const int null = ::open("/dev/null", O_RDWR);
  if (socket < 0 || file < 0 || null < 0) ::_exit(1);
  ::dup2(socket, STDIN_FILENO);
  ::dup2(null, STDOUT_FILENO);
  ::dup2(null, STDERR_FILENO);
  ::dup2(file, kRequestFile);
  // It would look for debug information on the network.
  ::unsetenv("DEBUGINFOD_URLS");
  ::execl(program_.c_str(), "lockstep-stacks", static_cast<char*>(nullptr));
  ::_exit(127);
}

bool StackNames::Ask(std::string_view request) {
  if (busy() || !Start()) return false;
  line_.clear();
  const std::string size = SizeLine(request.size());
  if (::ftruncate(file_.get(), 0) != 0 || ::lseek(file_.get(), 0, SEEK_SET) != 0 ||
      WriteAll(file_.get(), request) != 0 ||
      ::send(socket_.get(), size.data(), size.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(size.size())) {
    Fail("it could not be asked");
    return false;
  }
  asked_ns_ = RawNs();
  return true;
}

std::string StackNames::Fail(const char* why) {
  End();
  ++failures_;
  why_ = program_ + ": " + why;
  return "";
}

std::optional<std::string> StackNames::Answer() {
  if (!busy()) return std::nullopt;
  char bytes[64];
  ssize_t got;
  while ((got = ::recv(socket_.get(), bytes, sizeof bytes, 0)) > 0) line_.append(bytes, static_cast<std::size_t>(got));
  const bool waits = got < 0 && (errno == EAGAIN || errno == EINTR);
  if (line_.find('\n') == std::string::npos) {
    if (!waits) return Fail("it ended without an answer");
    if (RawNs() - asked_ns_ > kLongestNamesNs) return Fail("it gave no answer in time");
    return std::nullopt;
  }
  std::uint64_t size = 0;
  std::from_chars(line_.data(), line_.data() + line_.size(), size);
  asked_ns_ = 0;
  failures_ = 0;
  why_.clear();
  return ReadUpTo(file_.get(), 0, std::min<std::uint64_t>(size, kMostAnswer));
}

void StackNames::End() {
  asked_ns_ = 0;
  socket_.Reset();
  file_.Reset();
  if (process_ <= 0) return;
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
  process_ = -1;
}

}  // namespace lockstep::agent
