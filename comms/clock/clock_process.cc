#include "comms/clock/clock_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "comms/clock/quiet_thread.h"
#include "comms/clock/socket_util.h"

extern char** environ;

namespace lockstep::clock {
namespace {

constexpr std::int64_t kInitLimitNs = 30'000'000'000;

}  // namespace

struct ClockProcess::Impl {
  pid_t pid = -1;
  net::Fd input, output;
  ClockClient::Sink sink;
  std::atomic<std::uint64_t> rows{0};
  std::atomic<bool> ready{false};
  std::thread reader;

  void Read();
  bool Reap(const std::function<bool()>& give_up);
};

Result<std::unique_ptr<ClockProcess>> ClockProcess::Start(const std::string& program, const ClockProcessSetup& setup,
                                                          ClockClient::Sink sink) {
  const auto failed = [&](int error) {
    return Error{ErrorCode::kIo, std::string("cannot start lockstep-clock: ") + strerror(error), program,
                 "build Lockstep with MPI, or run without --clock agent"};
  };
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0) return failed(errno);
  net::Fd child_in(in[0]), parent_in(in[1]);
  if (pipe2(out, O_CLOEXEC) != 0) return failed(errno);
  net::Fd parent_out(out[0]), child_out(out[1]);
  // Nothing of the probe is loaded: this is Lockstep's own process, not the application.
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (strncmp(*entry, "LD_PRELOAD=", 11) != 0 && strncmp(*entry, "LOCKSTEP_", 9) != 0) environment.push_back(*entry);
  environment.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, child_in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, child_out.get(), STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, defaults;
  sigemptyset(&none);
  sigemptyset(&defaults);
  for (const int number : {SIGPIPE, SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&defaults, number);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  char name[] = "lockstep-clock";
  char* arguments[] = {name, nullptr};
  pid_t pid = -1;
  const int error = posix_spawn(&pid, program.c_str(), &actions, &attributes, arguments, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return failed(error);
  auto impl = std::make_unique<Impl>();
  impl->pid = pid;
  impl->input = std::move(parent_in);
  impl->output = std::move(parent_out);
  impl->sink = std::move(sink);
  // The message fits into the pipe, so the write cannot block. The agent ignores SIGPIPE (SignalGate), and the reader
  // notices a child that has ended already.
  const ssize_t ignored = write(impl->input.get(), &setup, sizeof setup);
  static_cast<void>(ignored);
  impl->reader = QuietThread([raw = impl.get()] { raw->Read(); });
  return std::unique_ptr<ClockProcess>(new ClockProcess(std::move(impl)));
}

ClockProcess::ClockProcess(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ClockProcess::~ClockProcess() {
  Kill();
  impl_->reader.join();
}

std::uint64_t ClockProcess::rows() const { return impl_->rows.load(std::memory_order_relaxed); }

// Each part of a burst is one write of at most PIPE_BUF bytes, so rows arrive whole. A burst ends where its number
// changes.
void ClockProcess::Impl::Read() {
  std::vector<char> bytes(sizeof(BurstRow) * 1024);
  std::size_t filled = 0;
  for (;;) {
    const ssize_t n = read(output.get(), bytes.data() + filled, bytes.size() - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    filled += static_cast<std::size_t>(n);
    const std::size_t whole = filled / sizeof(BurstRow);
    std::vector<BurstRow> burst(whole);
    memcpy(burst.data(), bytes.data(), whole * sizeof(BurstRow));
    if (std::erase_if(burst, [](const BurstRow& row) { return row.burst == kClockReadyBurst; }) > 0)
      ready.store(true, std::memory_order_relaxed);
    if (!burst.empty()) sink(burst);
    rows.fetch_add(burst.size(), std::memory_order_relaxed);
    filled -= whole * sizeof(BurstRow);
    memmove(bytes.data(), bytes.data() + whole * sizeof(BurstRow), filled);
  }
}

bool ClockProcess::Impl::Reap(const std::function<bool()>& give_up) {
  while (pid > 0) {
    int status = 0;
    const pid_t got = waitpid(pid, &status, WNOHANG);
    // ECHILD: the agent's own wait loop was faster, so the status is not available here.
    if (got == pid || (got < 0 && errno == ECHILD)) {
      pid = -1;
      return got < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    if (give_up && give_up()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

bool ClockProcess::Finish(const std::function<bool()>& interrupted) {
  impl_->input.Reset();
  const std::int64_t deadline = RawNs() + kInitLimitNs;
  const bool well = impl_->Reap([&] {
    return (interrupted && interrupted()) || (!impl_->ready.load(std::memory_order_relaxed) && RawNs() > deadline);
  });
  Kill();
  if (impl_->reader.joinable()) {
    impl_->reader.join();
    impl_->reader = std::thread([] {});
  }
  return well;
}

void ClockProcess::Kill() {
  if (impl_->pid <= 0) return;
  kill(impl_->pid, SIGKILL);
  impl_->Reap([deadline = RawNs() + 1'000'000'000] { return RawNs() > deadline; });
}

}  // namespace lockstep::clock
