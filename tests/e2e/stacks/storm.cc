// Threads that wait in many calls, with and without timeouts, while somebody takes their stacks.
// usage: storm SECONDS [DIRECTORY]
//
// Prints "ready", then at the end a line for each call: its name, how often it was called, how often it ended with
// EINTR, and how often with too little or too much of its time; and what timers and children did. No signal arrives in
// these threads. With a directory, into which it prints then, the main thread makes the calls with a timeout, one after
// the other; as a rank of MPI (LOCKSTEP_STORM_MPI), with a broadcast before each round.

#ifdef LOCKSTEP_STORM_MPI
#include <mpi.h>
#endif
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr long kTimeoutMs = 40;

std::atomic<bool> ending{false};
std::atomic<int> ticks{0};

std::int64_t Now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

struct Row {
  std::string name;
  std::function<int()> call;
  bool timed = true;  // It lasts kTimeoutMs; else until the program ends.
  std::atomic<long> calls{0}, interrupted{0}, early{0};
  Row(std::string n, std::function<int()> c, bool t) : name(std::move(n)), call(std::move(c)), timed(t) {}
};

void RunOnce(Row& row) {
  const std::int64_t begin = Now();
  errno = 0;
  const int result = row.call();
  const int error = errno;
  ++row.calls;
  if (result < 0 && error == EINTR) ++row.interrupted;
  if (row.timed && Now() - begin < (kTimeoutMs - 1) * 1'000'000) ++row.early;
}

void Run(Row& row) {
  while (!ending) {
    RunOnce(row);
    if (!row.timed) break;
  }
}

// All ranks make the same number of rounds.
bool GoesOn(bool mine) {
#ifdef LOCKSTEP_STORM_MPI
  int go_on = mine;
  MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return go_on != 0;
#else
  return mine;
#endif
}

void OnAlarm(int) { ++ticks; }

}  // namespace

int main(int count, char** words) {
  const double seconds = std::atof(words[1]);
  const bool on_main = count > 2;
#ifdef LOCKSTEP_STORM_MPI
  MPI_Init(nullptr, nullptr);
#endif
  if (on_main && std::freopen((words[2] + ("/" + std::to_string(::getpid()))).c_str(), "w", stdout) == nullptr)
    return 2;
  // Signals come to one thread only.
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  int silent[2], pair[2], timed_pair[2];
  if (::pipe(silent) != 0 || ::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 ||
      ::socketpair(AF_UNIX, SOCK_STREAM, 0, timed_pair) != 0)
    return 2;
  const timeval limit{0, kTimeoutMs * 1000};
  ::setsockopt(timed_pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const int epoll = ::epoll_create1(0), endless_epoll = ::epoll_create1(0);
  const int semaphore = ::semget(IPC_PRIVATE, 1, 0600);
  if (semaphore < 0) return 2;
  epoll_event event{.events = EPOLLIN, .data = {}};
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, silent[0], &event);
  ::epoll_ctl(endless_epoll, EPOLL_CTL_ADD, silent[0], &event);
  std::mutex mutex;
  std::condition_variable never;
  const timespec timeout{0, kTimeoutMs * 1'000'000};
  static char byte;
  std::vector<std::unique_ptr<Row>> rows;
  const auto add = [&](const char* name, std::function<int()> call, bool timed = true) {
    rows.push_back(std::make_unique<Row>(name, std::move(call), timed));
  };
  add("nanosleep", [&] { return ::nanosleep(&timeout, nullptr); });
  add("clock_nanosleep", [&] { return -(errno = ::clock_nanosleep(CLOCK_MONOTONIC, 0, &timeout, nullptr)); });
  add("poll", [&] {
    pollfd fd{silent[0], POLLIN, 0};
    return ::poll(&fd, 1, kTimeoutMs);
  });
  add("ppoll", [&] {
    pollfd fd{silent[0], POLLIN, 0};
    return ::ppoll(&fd, 1, &timeout, nullptr);
  });
  add("select", [&] {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(silent[0], &set);
    timeval left{0, kTimeoutMs * 1000};
    return ::select(silent[0] + 1, &set, nullptr, nullptr, &left);
  });
  add("epoll_wait", [&] {
    epoll_event out;
    return ::epoll_wait(epoll, &out, 1, kTimeoutMs);
  });
  add("semtimedop", [&] {
    sembuf take{0, -1, 0};
    return ::semtimedop(semaphore, &take, 1, &timeout);
  });
  add("sigtimedwait", [&] {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    return ::sigtimedwait(&set, nullptr, &timeout);
  });
  add("futex", [&] {
    std::unique_lock lock(mutex);
    return never.wait_for(lock, std::chrono::milliseconds(kTimeoutMs)) == std::cv_status::timeout ? 0 : 1;
  });
  add("recv with a timeout", [&] { return static_cast<int>(::recv(timed_pair[0], &byte, 1, 0)); });
  add(
      "read", [&] { return static_cast<int>(::read(silent[0], &byte, 1)); }, false);
  add(
      "recv", [&] { return static_cast<int>(::recv(pair[0], &byte, 1, 0)); }, false);
  add(
      "epoll_wait for ever",
      [&] {
        epoll_event out;
        return ::epoll_wait(endless_epoll, &out, 1, -1);
      },
      false);
  add(
      "semop",
      [&] {
        sembuf take{0, -1, 0};
        return ::semop(semaphore, &take, 1);
      },
      false);

  const pid_t child = ::fork();
  if (child == 0) {
    char c = 0;
    ::close(silent[1]);
    ::_exit(::read(silent[0], &c, 1) == 0 ? 5 : 6);
  }
  std::vector<std::thread> threads;
  for (auto& row : rows)
    if (!on_main || !row->timed) threads.emplace_back([&row] { Run(*row); });
  // One that makes short calls of the kind that a stop ends, so that stops race with their begin.
  std::atomic<long> quick_calls{0}, quick_interrupted{0};
  std::thread racing([&] {
    while (!ending) {
      epoll_event out;
      timespec tiny{0, 20'000};
      sigset_t set;
      sigemptyset(&set);
      sigaddset(&set, SIGUSR2);
      for (const int result : {::epoll_wait(epoll, &out, 1, 0), ::sigtimedwait(&set, nullptr, &tiny)})
        if (result < 0 && errno == EINTR) ++quick_interrupted;
      ++quick_calls;
    }
  });
  struct sigaction action {};
  action.sa_handler = OnAlarm;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGALRM, &action, nullptr);
  std::thread ticking([] {
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    ::pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
    while (!ending) ::usleep(1000);
  });
  const itimerval every{{0, 10'000}, {0, 10'000}};
  ::setitimer(ITIMER_REAL, &every, nullptr);
  std::puts("ready");
  std::fflush(stdout);
  const std::int64_t begin = Now();
  while (GoesOn(Now() - begin < static_cast<std::int64_t>(seconds * 1e9))) {
    if (!on_main) ::poll(nullptr, 0, 20);
    for (auto& row : rows)
      if (on_main && row->timed) RunOnce(*row);
  }
  const int seen = ticks;
  const double lasted = static_cast<double>(Now() - begin) / 1e9;
  ending = true;
  // Wakes those without a timeout.
  ::close(silent[1]);
  ::shutdown(pair[1], SHUT_RDWR);
  sembuf give{0, 8, 0};
  ::semop(semaphore, &give, 1);
  for (std::thread& thread : threads) thread.join();
  racing.join();
  ticking.join();
  for (auto& row : rows)
    std::printf("call\t%s\t%ld\t%ld\t%ld\n", row->name.c_str(), row->calls.load(), row->interrupted.load(),
                row->early.load());
  std::printf("call\tracing\t%ld\t%ld\t0\n", quick_calls.load(), quick_interrupted.load());
  int status = 0;
  ::waitpid(child, &status, 0);
  std::printf("child\t%d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  std::printf("ticks\t%d\t%.3f\n", seen, lasted);
  ::semctl(semaphore, 0, IPC_RMID);
#ifdef LOCKSTEP_STORM_MPI
  MPI_Finalize();
  return 0;  // Else the launcher ends the other rank.
#else
  return 42;
#endif
}
