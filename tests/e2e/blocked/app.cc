// A program whose first thread is blocked in known places, as often as it says itself in the file that it is given.
// Each wait is for an object of its own, and who ends it first sees the thread asleep: then it waits 10 ms more. So the
// counts do not depend on the machine's load.
//
//   blocked_app FILE      FILE: lines "function object count kind least_ns timed_out"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

#include "runtime/lockstep.h"

extern char** environ;

namespace {

constexpr long kLeastNs = 10'000'000;

FILE* g_told = nullptr;
std::atomic<bool> g_about{false};  // The watched thread goes to sleep now.

void Tell(const char* function, unsigned long object, int count, const char* kind, long least_ns = kLeastNs,
          bool timed_out = false) {
  std::fprintf(g_told, "%s %lu %d %s %ld %d\n", function, object, count, kind, least_ns, timed_out ? 1 : 0);
}
unsigned long Address(const void* object) { return reinterpret_cast<unsigned long>(object); }

void Pause(long ns) {
  timespec left{0, ns};
  while (syscall(SYS_nanosleep, &left, &left) != 0) {
  }
}

bool Sleeps(pid_t process, pid_t thread) {
  char path[64], text[512] = {};
  std::snprintf(path, sizeof path, "/proc/%d/task/%d/stat", process, thread);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const long got = syscall(SYS_read, file, text, sizeof text - 1);
  close(file);
  const char* end = got > 0 ? std::strrchr(text, ')') : nullptr;
  return end != nullptr && end[2] == 'S';
}

void AwaitSleep(pid_t process, pid_t thread) {
  while (!Sleeps(process, thread)) Pause(200'000);
  Pause(kLeastNs);
}

// `wait` on the calling thread, `end` on another one once that sleeps.
void Blocked(const std::function<void()>& wait, const std::function<void()>& end) {
  const pid_t self = static_cast<pid_t>(syscall(SYS_gettid));
  g_about = false;
  std::thread other([&] {
    lockstep_mark("ends a wait");  // So that this thread has a row.
    while (!g_about) Pause(200'000);
    AwaitSleep(getpid(), self);
    end();
  });
  g_about = true;
  wait();
  other.join();
}

void ConditionVariables() {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < 3; ++i)
    Blocked([&] { pthread_cond_wait(&condition, &mutex); },
            [&] { i == 1 ? pthread_cond_broadcast(&condition) : pthread_cond_signal(&condition); });
  timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += 2 * kLeastNs;
  if (until.tv_nsec >= 1'000'000'000) until.tv_sec += 1, until.tv_nsec -= 1'000'000'000;
  std::printf("timed wait %s\n", std::strerror(pthread_cond_timedwait(&condition, &mutex, &until)));
  pthread_mutex_unlock(&mutex);
  Tell("pthread_cond_wait", Address(&condition), 3, "condition");
  Tell("pthread_cond_timedwait", Address(&condition), 1, "condition", 1'000, true);

  std::mutex of_cpp;
  std::condition_variable also_of_cpp;
  bool done = false;
  std::unique_lock lock(of_cpp);
  Blocked([&] { also_of_cpp.wait(lock, [&] { return done; }); },
          [&] {
            const std::lock_guard guard(of_cpp);
            done = true;
            also_of_cpp.notify_all();
          });
  Tell("pthread_cond_wait", Address(also_of_cpp.native_handle()), 1, "condition");
}

void Locks() {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;
  sem_t semaphore;
  sem_init(&semaphore, 0, 0);
  for (int i = 0; i < 4; ++i) {
    std::atomic<int> stage{0};
    std::thread holder([&] {
      pthread_mutex_lock(&mutex);
      pthread_rwlock_wrlock(&shared);
      stage = 1;
      while (stage != 2) Pause(200'000);
      AwaitSleep(getpid(), getpid());
      pthread_mutex_unlock(&mutex);
      while (stage != 3) Pause(200'000);
      AwaitSleep(getpid(), getpid());
      pthread_rwlock_unlock(&shared);
    });
    while (stage != 1) sched_yield();
    stage = 2;
    pthread_mutex_lock(&mutex);
    stage = 3;
    pthread_rwlock_rdlock(&shared);
    pthread_rwlock_unlock(&shared);
    pthread_mutex_unlock(&mutex);
    holder.join();
    Blocked([&] { sem_wait(&semaphore); }, [&] { sem_post(&semaphore); });
  }
  Tell("pthread_mutex_lock", Address(&mutex), 4, "lock");
  Tell("pthread_rwlock_rdlock", Address(&shared), 4, "lock");
  Tell("sem_wait", Address(&semaphore), 4, "semaphore");

  // Free ones: nothing is recorded of them, and they answer as without Lockstep.
  pthread_mutexattr_t attribute;
  pthread_mutex_t checked, robust;
  pthread_mutexattr_init(&attribute);
  pthread_mutexattr_settype(&attribute, PTHREAD_MUTEX_ERRORCHECK);
  pthread_mutex_init(&checked, &attribute);
  pthread_mutexattr_setrobust(&attribute, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&robust, &attribute);
  pthread_mutex_lock(&checked);
  std::printf("again: %s\n", std::strerror(pthread_mutex_lock(&checked)));
  std::thread([&] { pthread_mutex_lock(&robust); }).join();
  std::printf("owner ended: %s\n", std::strerror(pthread_mutex_lock(&robust)));
  pthread_mutex_consistent(&robust);
  for (int i = 0; i < 1000; ++i) {
    pthread_mutex_unlock(&robust);
    pthread_mutex_lock(&robust);
  }
  const timespec never{0, -1};
  std::printf("no such time: %s\n", std::strerror(pthread_mutex_timedlock(&checked, &never)));
  Tell("pthread_mutex_lock", Address(&robust), 0, "lock");
}

void Sleeping() {
  const timespec time{0, kLeastNs};
  nanosleep(&time, nullptr);
  nanosleep(&time, nullptr);
  clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
  usleep(kLeastNs / 1000);
  sleep(1);
  poll(nullptr, 0, 10);
  timeval short_time{0, kLeastNs / 1000};
  select(0, nullptr, nullptr, nullptr, &short_time);
  for (const auto& [name, count] : {std::pair("nanosleep", 2), {"clock_nanosleep", 1}, {"usleep", 1}})
    Tell(name, 0, count, "sleep", kLeastNs, true);
  Tell("sleep", 0, 1, "sleep", 1'000'000'000, true);
  Tell("poll", 0, 1, "sleep", kLeastNs, true);
  Tell("select", 0, 1, "sleep", kLeastNs, true);
}

void Descriptors() {
  int pipes[2], pair[2];
  if (pipe(pipes) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) std::abort();
  char byte = 'x';
  const auto feed = [&] { syscall(SYS_write, pipes[1], &byte, 1); };
  const auto reading = static_cast<unsigned long>(pipes[0]);
  Blocked([&] { std::printf("read %zd\n", read(pipes[0], &byte, 1)); }, feed);
  errno = EDOM;  // Stays.
  Blocked(
      [&] {
        pollfd file{pipes[0], POLLIN, 0};
        std::printf("poll %d\n", poll(&file, 1, -1));
      },
      feed);
  std::printf("errno %d\n", errno == EDOM);
  Blocked(
      [&] {
        syscall(SYS_read, pipes[0], &byte, 1);  // What poll saw.
        read(pipes[0], &byte, 1);
      },
      feed);
  Tell("read", reading, 2, "socket");
  Tell("poll", reading, 1, "socket");
  const int events = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{EPOLLIN, {}};
  epoll_ctl(events, EPOLL_CTL_ADD, pipes[0], &event);
  Blocked([&] { std::printf("epoll %d\n", epoll_wait(events, &event, 1, -1)); }, feed);
  Tell("epoll_wait", static_cast<unsigned long>(events), 1, "socket");
  Blocked([&] { std::printf("recv %zd\n", recv(pair[0], &byte, 1, 0)); },
          [&] { syscall(SYS_write, pair[1], &byte, 1); });
  Tell("recv", static_cast<unsigned long>(pair[0]), 1, "socket");

  char path[] = "/tmp/lockstep-blocked-XXXXXX";
  const int file = mkstemp(path), again = open(path, O_RDWR | O_CLOEXEC);
  flock(again, LOCK_EX);
  Blocked([&] { std::printf("flock %d\n", flock(file, LOCK_EX)); }, [&] { flock(again, LOCK_UN); });
  Tell("flock", static_cast<unsigned long>(file), 1, "file");
  std::printf("written %zd synced %d\n", write(file, path, sizeof path), fsync(file));
  std::printf("path %s\n", "is told");
  std::fprintf(g_told, "path %s\n", path);
  unlink(path);
}

sem_t g_from_handler;
sigjmp_buf g_jump;
void Posts(int) { sem_post(&g_from_handler); }
void Jumps(int) { siglongjmp(g_jump, 1); }

void Handlers() {
  sem_init(&g_from_handler, 0, 0);
  struct sigaction action {};
  action.sa_handler = Posts;
  sigaction(SIGUSR1, &action, nullptr);
  const pthread_t self = pthread_self();
  Blocked(
      [&] {
        while (sem_wait(&g_from_handler) != 0) std::printf("interrupted %d\n", errno == EINTR);
      },
      [&] { pthread_kill(self, SIGUSR1); });
  // Out of a wait that others see, and out of a call: later waits are recorded as before.
  action.sa_handler = Jumps;
  sigaction(SIGUSR2, &action, nullptr);
  static sem_t never;
  sem_init(&never, 0, 0);
  const auto jump = [&] { pthread_kill(self, SIGUSR2); };
  Blocked(
      [&] {
        if (sigsetjmp(g_jump, 1) == 0) sem_wait(&never);
      },
      jump);
  int pipes[2];
  if (pipe(pipes) != 0) std::abort();
  Blocked(
      [&] {
        char byte = 0;
        if (sigsetjmp(g_jump, 1) == 0 && read(pipes[0], &byte, 1) == 1) std::abort();
      },
      jump);
  static sem_t semaphore;
  sem_init(&semaphore, 0, 0);
  Blocked([&] { sem_wait(&semaphore); }, [&] { sem_post(&semaphore); });
  Tell("sem_wait", Address(&semaphore), 1, "semaphore");
  std::printf("jumped\n");
}

std::atomic<int> g_cleaned{0};
struct Cleans {
  ~Cleans() { ++g_cleaned; }
};

// In each class of call: watched threads, whose stacks are unwound through the calls in the place of libc's.
void Cancellation() {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  static sem_t semaphore;
  static int pipes[2];
  static pthread_t other;
  if (sem_init(&semaphore, 0, 0) != 0 || pipe(pipes) != 0) std::abort();
  pthread_create(
      &other, nullptr,
      [](void*) -> void* {
        for (;;) pause();
      },
      nullptr);
  static void (*const kCalls[])() = {
      [] {
        pthread_mutex_lock(&mutex);
        pthread_cleanup_push(
            [](void*) {
              pthread_mutex_unlock(&mutex);
              ++g_cleaned;
            },
            nullptr);
        for (;;) pthread_cond_wait(&condition, &mutex);
        pthread_cleanup_pop(1);
      },
      [] { sem_wait(&semaphore); },
      [] { pthread_join(other, nullptr); },
      [] { sleep(100); },
      [] { poll(nullptr, 0, -1); },
      [] {
        char byte;
        if (read(pipes[0], &byte, 1) != 0) std::abort();
      },
      [] {
        waitpid(-1, nullptr, 0);
        std::abort();
      },
  };
  // A child that stays, to be waited for.
  const pid_t child = fork();
  if (child == 0)
    for (;;) pause();
  int cancelled = 0;
  for (const auto& call : kCalls) {
    std::atomic<pid_t> tid{0};
    struct Given {
      void (*call)();
      std::atomic<pid_t>* tid;
    } given{call, &tid};
    pthread_t thread;
    pthread_create(
        &thread, nullptr,
        [](void* at) -> void* {
          const auto& what = *static_cast<Given*>(at);
          lockstep_step();  // Now it is watched.
          Cleans cleans;
          *what.tid = static_cast<pid_t>(syscall(SYS_gettid));
          what.call();
          return nullptr;
        },
        &given);
    while (tid == 0) sched_yield();
    AwaitSleep(getpid(), tid);
    pthread_cancel(thread);
    void* value = nullptr;
    pthread_join(thread, &value);
    cancelled += value == PTHREAD_CANCELED;
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  std::printf("cancelled %d, cleaned %d\n", cancelled, g_cleaned.load());
}

void Children() {
  const pid_t self = getpid();
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    usleep(1000);  // In the child, which records nothing.
    AwaitSleep(self, self);
    _exit(7);
  }
  int status = 0;
  std::printf("forked %d ", waitpid(child, &status, 0) == child);
  std::printf("%d\n", WEXITSTATUS(status));
  Tell("waitpid", static_cast<unsigned long>(child), 1, "child");
  const pid_t shares = vfork();
  if (shares == 0) {
    usleep(2000);
    execl("/bin/true", "true", nullptr);
    _exit(9);
  }
  std::printf("vforked %d\n", waitpid(shares, &status, 0) == shares && status == 0);
  Tell("usleep", 0, -1, "sleep");  // Nothing more than before.
  pid_t spawned = 0;
  char name[] = "true";
  char* words[] = {name, nullptr};
  std::printf("spawned %d\n", posix_spawn(&spawned, "/bin/true", nullptr, nullptr, words, environ));
  waitpid(spawned, &status, 0);
  std::printf("system %d\n", system("exit 3") >> 8);
}

void Joins() {
  std::atomic<bool> go{false};
  const pid_t self = getpid();
  struct Given {
    std::atomic<bool>* go;
    pid_t self;
  } given{&go, self};
  pthread_t handle;
  const auto run = [](void* at) -> void* {
    const auto& what = *static_cast<Given*>(at);
    while (!*what.go) Pause(200'000);
    AwaitSleep(what.self, what.self);
    return nullptr;
  };
  pthread_create(&handle, nullptr, run, &given);
  timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 3600;
  go = true;
  // Others were joined before, whose handle may be the same.
  std::printf("joined %d\n", pthread_timedjoin_np(handle, nullptr, &until));
  Tell("pthread_timedjoin_np", handle, 1, "join");
}

}  // namespace

int main(int argc, char** argv) {
  g_told = argc > 1 ? std::fopen(argv[1], "w") : nullptr;
  if (g_told == nullptr) return 2;
  lockstep_step();
  ConditionVariables();
  Locks();
  lockstep_step();
  Sleeping();
  Descriptors();
  lockstep_step();
  Handlers();
  Children();
  Cancellation();
  Joins();
  for (int i = 0; i < 20; ++i) lockstep_step();  // More than any other thread.
  lockstep_step_end();
  std::fclose(g_told);
  return 0;
}
