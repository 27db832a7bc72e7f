// Programs that stand in known functions: targets lock|loop|read|closed|nested|generic|missed|exits|execs SECONDS
// Prints "ready" when it stands there. Lines that tests ask for carry a mark in a comment.
// missed: at the end prints for how long it did not run: "missed", all times longer than 5 us together, the longest,
// ns.

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace lockstep_demo {

std::mutex held;
std::atomic<bool> stop{false};
std::atomic<unsigned long> sink{0};

void Ready() {
  std::puts("ready");
  std::fflush(stdout);
}

__attribute__((noinline)) void TakeLock() {
  Ready();
  held.lock();  // mark: lock
  sink = sink + 1;
}

__attribute__((noinline)) void Spin() {
  Ready();
  while (!stop.load(std::memory_order_relaxed))  // mark: loop
    sink.fetch_add(1, std::memory_order_relaxed);
  sink = sink + 1;
}

std::int64_t NowNs() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void Missed(double seconds) {
  Ready();
  std::int64_t missed_ns = 0, longest_ns = 0;
  const std::int64_t begin_ns = NowNs();
  for (std::int64_t last_ns = begin_ns; static_cast<double>(last_ns - begin_ns) < seconds * 1e9;) {
    const std::int64_t now_ns = NowNs();
    if (now_ns - last_ns > 5'000) missed_ns += now_ns - last_ns;
    longest_ns = std::max(longest_ns, now_ns - last_ns);
    last_ns = now_ns;
  }
  std::printf("missed\t%" PRId64 "\t%" PRId64 "\n", missed_ns, longest_ns);
  std::fflush(stdout);
}

__attribute__((noinline)) int ReadPipe(int fd) {
  char c = 0;
  Ready();
  const ssize_t got = ::read(fd, &c, 1);  // mark: read
  sink = sink + 1;
  return static_cast<int>(got);
}

// The frame pointer is none here, and the depth is known.
__attribute__((noinline)) unsigned long Nested(int depth, int fd) {
  volatile unsigned long room[16];
  room[depth % 16] = static_cast<unsigned long>(depth);
  unsigned long sum = depth == 0 ? static_cast<unsigned long>(ReadPipe(fd)) : Nested(depth - 1, fd) + 1;
  return sum + room[depth % 16];
}

template <typename Value>
__attribute__((noinline)) Value Generic(Value value, int fd) {
  const Value got = static_cast<Value>(ReadPipe(fd));
  sink = sink + 1;
  return value + got;
}

}  // namespace lockstep_demo

using namespace lockstep_demo;

int main(int count, char** words) {
  const std::string mode = count > 1 ? words[1] : "";
  const double seconds = count > 2 ? std::atof(words[2]) : 30;
  std::thread end([&] {
    ::usleep(static_cast<useconds_t>(seconds * 1e6));
    if (mode != "keeps") std::exit(7);
  });
  int fds[2];
  if (::pipe(fds) != 0) return 2;
  if (mode == "lock") {
    held.lock();
    std::thread([] { TakeLock(); }).join();
  } else if (mode == "loop") {
    Spin();
  } else if (mode == "read") {
    ReadPipe(fds[0]);
  } else if (mode == "closed") {
    ::prctl(PR_SET_DUMPABLE, 0);
    ReadPipe(fds[0]);
  } else if (mode == "nested") {
    Nested(20, fds[0]);
  } else if (mode == "generic") {
    Generic<double>(1, fds[0]);
  } else if (mode == "missed") {
    Missed(seconds - 1);
    ::_exit(0);
  } else if (mode == "exits") {
    // Threads that come and go while stacks are taken.
    Ready();
    const std::time_t until = std::time(nullptr) + static_cast<std::time_t>(seconds) - 1;
    while (std::time(nullptr) < until) {
      std::vector<std::thread> threads;
      for (int i = 0; i < 8; ++i) threads.emplace_back([] { sink.fetch_add(1); });
      for (std::thread& thread : threads) thread.join();
    }
    ::_exit(9);
  } else if (mode == "execs") {
    // Another thread executes, as the whole process does then.
    Ready();
    const int left = std::atoi(words[3]);
    if (left == 0) ::_exit(11);
    const std::string next = std::to_string(left - 1);
    std::thread([&] { ::execl("/proc/self/exe", "targets", "execs", words[2], next.c_str(), nullptr); }).join();
  } else {
    return 2;
  }
  end.join();
  return 0;
}
