#include "runtime/agent/slot/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/agent/inject/elf_file.h"
#include "runtime/agent/slot/exec.h"

namespace lockstep::agent {
namespace {

// Signals that are sent to this process but are meant for the application.
constexpr int kHandled[] = {SIGCHLD,  SIGTERM, SIGINT,  SIGHUP,  SIGQUIT,   SIGUSR1, SIGUSR2, SIGALRM,
                            SIGWINCH, SIGXCPU, SIGCONT, SIGPROF, SIGVTALRM, SIGPWR,  SIGIO};

}  // namespace

Result<SignalGate> SignalGate::Open() {
  SignalGate gate;
  sigset_t mask;
  sigemptyset(&mask);
  for (const int signal : kHandled) sigaddset(&mask, signal);
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) sigaddset(&mask, signal);
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  // With an inherited SIG_IGN the child's exit status would be lost.
  ::sigaction(SIGCHLD, &action, &gate.old_child_);
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, &gate.old_pipe_);
  // With ulimit -f, a write past the limit then fails with EFBIG, as on a full disk.
  ::sigaction(SIGXFSZ, &action, &gate.old_file_size_);
  ::pthread_sigmask(SIG_BLOCK, &mask, &gate.old_mask_);
  gate.fd_ = ::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  if (gate.fd_ < 0) {
    const int error = errno;
    gate.RestoreInChild();
    return Error{ErrorCode::kIo, "signalfd failed: " + std::string(std::strerror(error)), "", "raise ulimit -n"};
  }
  return gate;
}

SignalGate::SignalGate(SignalGate&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      old_mask_(other.old_mask_),
      old_child_(other.old_child_),
      old_pipe_(other.old_pipe_),
      old_file_size_(other.old_file_size_) {}

std::optional<Received> SignalGate::Read() const {
  signalfd_siginfo info;
  if (::read(fd_, &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
  return Received{static_cast<std::int32_t>(info.ssi_signo), info.ssi_code, static_cast<std::int32_t>(info.ssi_pid),
                  static_cast<std::int64_t>(info.ssi_ptr)};
}

SignalGate::~SignalGate() {
  if (fd_ < 0) return;
  // Discard signals that were meant for the application, which has ended.
  while (Read()) {
  }
  ::close(fd_);
  RestoreInChild();
}

void SignalGate::RestoreInChild() const {
  ::sigaction(SIGCHLD, &old_child_, nullptr);
  ::sigaction(SIGPIPE, &old_pipe_, nullptr);
  ::sigaction(SIGXFSZ, &old_file_size_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

Result<Child> Child::Start(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                           const SignalGate& gate, launch::LaunchSource launcher, int ignored_signal) {
  const std::string path = FindProgram(command[0]);
  std::vector<char*> argv, envp;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  for (const std::string& word : environment) envp.push_back(const_cast<char*>(word.c_str()));
  envp.push_back(nullptr);
  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0)
    return Error{ErrorCode::kIo, "pipe failed: " + std::string(std::strerror(errno)), "", "raise ulimit -n"};

  Child child;
  const pid_t pid = ::fork();
  if (pid < 0) {
    const int error = errno;
    ::close(report[0]);
    ::close(report[1]);
    return Error{ErrorCode::kIo, "fork failed: " + std::string(std::strerror(error)), "", "raise ulimit -u"};
  }
  if (pid == 0) {
    gate.RestoreInChild();
    if (ignored_signal != 0) ::signal(ignored_signal, SIG_IGN);
    const int error = ExecAs(launcher, path, argv.data(), envp.data());
    const ssize_t ignored = ::write(report[1], &error, sizeof error);
    static_cast<void>(ignored);
    ::_exit(127);
  }
  ::close(report[1]);
  int error = 0;
  ssize_t n;
  do {
    n = ::read(report[0], &error, sizeof error);
  } while (n < 0 && errno == EINTR);
  ::close(report[0]);
  if (n == sizeof error) {
    ::waitpid(pid, nullptr, 0);
    child.start_errno_ = error;
    return child;
  }
  child.pid_ = pid;
  return child;
}

ChildExit Child::Poll() {
  ChildExit result;
  if (pid_ <= 0) return result;
  // While its stack is read, its stops are reported as well, whatever is asked for (as to every tracer): they are no
  // end, and are left for who awaits them. The system call has the usage, too, which waitid(3) has not.
  const auto look = [&](siginfo_t& info, int more) {
    long failed;
    do {
      failed = ::syscall(SYS_waitid, P_PID, pid_, &info, WEXITED | WNOHANG | more, &result.usage);
    } while (failed != 0 && errno == EINTR);
    const bool ended = info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
    return failed == 0 && info.si_pid == pid_ && ended;
  };
  siginfo_t seen{}, info{};
  if (!look(seen, WNOWAIT) || !look(info, 0)) return result;
  result.ended = true;
  if (info.si_code == CLD_EXITED) {
    result.code = info.si_status;
  } else {
    result.signal = info.si_status;
  }
  pid_ = -1;
  return result;
}

void Child::Signal(const Received& received) const { SendSignal(pid_, received); }

bool Ends(int signal) {
  return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT || signal == SIGXCPU ||
         signal == SIGPWR;
}

void SendSignal(pid_t pid, const Received& received) {
  if (pid <= 0) return;
  sigval value{};
  value.sival_ptr = reinterpret_cast<void*>(received.value);
  if (received.code == SI_QUEUE)
    ::sigqueue(pid, received.signal, value);
  else
    ::kill(pid, received.signal);
}

void LeaveStandardStreams() {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return;
  ::dup2(null, STDIN_FILENO);
  ::dup2(null, STDOUT_FILENO);
  ::close(null);
}

void EndLike(int code, int signal) {
  if (signal == 0) ::_exit(code);
  // Only the application's core file is useful, if there is one.
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  ::prctl(PR_SET_DUMPABLE, 0);
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);
}

}  // namespace lockstep::agent
