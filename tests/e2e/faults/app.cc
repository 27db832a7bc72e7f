// A program without MPI that counts what it does: whatever happens to it, its own
// count is the truth a trace is compared with.
//
//   app marks RANGES [THREADS]     ranges "work" on each thread, all threads alive until the last has finished
//   app descriptors                ranges on threads while it holds all descriptors, and then all but two
//   app file_size                  ranges on threads while it may write to no file
//   app slow SECONDS               a range every millisecond
//   app mirror                     prints what it inherited
//   app throw | abort | exit | _exit | quick_exit | thread_exit | segv
//   app handler SIGNAL             prints "ready", ends with code 5 from its handler
//   app wait                       prints "ready" and sleeps
//   app lines N                    prints N lines
//   app exec N                     10 ranges, then replaces itself N times

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/lockstep.h"

extern char** environ;

namespace {

void Work(long ranges) {
  for (long i = 0; i < ranges; ++i) {
    lockstep_range_push("work");
    lockstep_range_pop();
  }
}

void WorkOn(long ranges, long threads) {
  std::barrier all(threads);
  std::vector<std::thread> workers;
  for (long t = 0; t < threads; ++t) {
    workers.emplace_back([&] {
      Work(ranges);
      all.arrive_and_wait();
    });
  }
  for (std::thread& worker : workers) worker.join();
}

int Marks(long ranges, long threads) {
  if (threads <= 1)
    Work(ranges);
  else
    WorkOn(ranges, threads);
  std::printf("%ld ranges\n", ranges * threads);
  return 0;
}

int OpenAll(std::vector<int>& mine) {
  const std::size_t before = mine.size();
  for (int fd; (fd = open("/dev/null", O_RDONLY)) >= 0;) mine.push_back(fd);
  return static_cast<int>(mine.size() - before);
}

int Descriptors() {
  std::vector<int> mine;
  std::printf("%d descriptors\n", OpenAll(mine));
  Marks(100, 20);
  for (int i = 0; i < 2; ++i) {
    close(mine.back());
    mine.pop_back();
  }
  Marks(100, 20);
  std::printf("%d again, last %d\n", OpenAll(mine), mine.back());
  return 0;
}

// SIGXFSZ would end it.
int FileSize() {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit none{0, before.rlim_max};
  if (setrlimit(RLIMIT_FSIZE, &none) != 0) return 1;
  WorkOn(100, 20);
  setrlimit(RLIMIT_FSIZE, &before);
  std::puts("2000 ranges");
  return 0;
}

int Slow(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::puts("ready");
  std::fflush(stdout);
  long ranges = 0;
  for (; std::chrono::steady_clock::now() < end; ++ranges) {
    Work(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::fprintf(stderr, "made %ld ranges\n", ranges);
  return 0;
}

// Everything a parent hands down that a program could notice, but for Lockstep's own variables.
int Mirror(int argc, char** argv) {
  for (int i = 0; i < argc; ++i) std::printf("argument %zu\n", std::strlen(argv[i]));
  for (int fd = 0; fd < 64; ++fd) {
    struct stat info;
    if (fstat(fd, &info) == 0) std::printf("fd %d flags %x\n", fd, static_cast<unsigned>(fcntl(fd, F_GETFL)));
  }
  std::FILE* status = std::fopen("/proc/self/status", "r");
  char line[512];
  while (status != nullptr && std::fgets(line, sizeof line, status) != nullptr) {
    for (const char* key :
         {"SigBlk:", "SigIgn:", "SigCgt:", "SigPnd:", "NoNewPrivs:", "Umask:", "Cpus_allowed:", "Uid:", "Threads:"})
      if (std::strncmp(line, key, std::strlen(key)) == 0) std::fputs(line, stdout);
  }
  for (int resource = 0; resource < RLIM_NLIMITS; ++resource) {
    rlimit limit{};
    getrlimit(static_cast<__rlimit_resource>(resource), &limit);
    std::printf("limit %d %lld %lld\n", resource, static_cast<long long>(limit.rlim_cur),
                static_cast<long long>(limit.rlim_max));
  }
  std::printf("timer slack %d, nice %d, dumpable %d, parent's death %d\n", prctl(PR_GET_TIMERSLACK),
              getpriority(PRIO_PROCESS, 0), prctl(PR_GET_DUMPABLE), [] {
                int signal = -1;
                prctl(PR_GET_PDEATHSIG, &signal);
                return signal;
              }());
  std::printf("group leader %d, session leader %d\n", getpgrp() == getpid(), getsid(0) == getpid());
  std::vector<std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string variable = *at;
    const std::string name = variable.substr(0, variable.find('='));
    if (name.rfind("LOCKSTEP_", 0) == 0 || name == "LD_PRELOAD" || name == "_" || name == "PYTHONPATH" ||
        name == "ASAN_OPTIONS" || name.find("INJECTION64_PATH") != std::string::npos || name == "NCCL_PROFILER_PLUGIN")
      continue;
    std::printf("%s %zu\n", name.c_str(), variable.size());
  }
  char directory[4096];
  std::printf("in %s\n", getcwd(directory, sizeof directory) != nullptr ? directory : std::strerror(errno));
  return 0;
}

void OnSignal(int) {
  lockstep_mark("handler");
  const char text[] = "handled\n";
  if (write(STDOUT_FILENO, text, sizeof text - 1) < 0) _exit(6);
  _exit(5);
}

int Wait() {
  std::puts("ready");
  std::fflush(stdout);
  for (;;) pause();
}

int Main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const double number = argc > 2 ? std::atof(argv[2]) : 0;
  if (mode == "marks") return Marks(static_cast<long>(number), argc > 3 ? std::atol(argv[3]) : 1);
  if (mode == "descriptors") return Descriptors();
  if (mode == "file_size") return FileSize();
  if (mode == "slow") return Slow(number);
  if (mode == "mirror") return Mirror(argc, argv);
  if (mode == "wait") {
    Work(10);
    return Wait();
  }
  if (mode == "handler") {
    Work(10);
    struct sigaction action {};
    action.sa_handler = OnSignal;
    sigaction(static_cast<int>(number), &action, nullptr);
    return Wait();
  }
  if (mode == "lines") {
    for (long i = 0; i < static_cast<long>(number); ++i) std::printf("line %ld\n", i);
    return 0;
  }
  Work(10);
  if (mode == "throw") throw std::runtime_error("nobody catches this");
  if (mode == "abort") std::abort();
  if (mode == "segv") raise(SIGSEGV);
  if (mode == "exit") std::exit(3);
  if (mode == "_exit") _exit(4);
  if (mode == "quick_exit") std::quick_exit(6);
  if (mode == "thread_exit") {
    std::thread([] {
      Work(10);
      std::exit(7);
    }).join();
  }
  if (mode == "exec") {
    std::printf("%d to go\n", static_cast<int>(number));
    std::fflush(stdout);
    if (number < 1) return 0;
    const std::string left = std::to_string(static_cast<int>(number) - 1);
    execl("/proc/self/exe", argv[0], "exec", left.c_str(), static_cast<char*>(nullptr));
    std::perror("execl");
    return 1;
  }
  std::fprintf(stderr, "app: no such mode\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) { return Main(argc, argv); }
