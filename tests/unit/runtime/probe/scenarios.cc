// Little programs for probe_test.cc: probe_scenarios NAME. They see lockstep.h only,
// as an application would; the probe is preloaded. Where the test has to act in
// between they print a line and wait for one.

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "runtime/lockstep.h"
#include "tests/unit/runtime/probe/single_step.h"

namespace {

void Sync(const char* what) {
  std::printf("%s\n", what);
  std::fflush(stdout);
  char line[16];
  if (std::fgets(line, sizeof line, stdin) == nullptr) std::exit(9);
}

void Ranges(int n) {
  for (int i = 0; i < n; ++i) {
    lockstep_range_push("work");
    lockstep_range_pop();
  }
}

// Before step 10 another thread computes for 30 ms.
int Steps() {
  for (int i = 0; i < 3; ++i) lockstep_step();
  std::thread([] {
    for (timespec cpu{}; cpu.tv_sec == 0 && cpu.tv_nsec < 30'000'000;) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
  }).join();
  lockstep_step_index(10);
  lockstep_step();
  lockstep_step_end();
  return 0;
}

int Names() {
  lockstep_range_push("outer");
  lockstep_range_push_category("input", LOCKSTEP_INPUT);
  lockstep_range_pop();
  lockstep_range_push_category("input", LOCKSTEP_BACKWARD);
  lockstep_range_pop();
  char name[64];
  for (int i = 0; i < 3; ++i) {  // One address, three texts.
    std::snprintf(name, sizeof name, "dynamic %d", i % 2);
    lockstep_range_push(name);
    lockstep_range_pop();
  }
  const std::string same = "outer";  // Another address, a known text.
  lockstep_range_push(same.c_str());
  lockstep_range_pop();
  lockstep_range_pop();
  lockstep_mark("mark");
  std::string longer(4095, 'x');
  longer += "\xc3\xa9 and more";  // The cut must not split a character.
  lockstep_range_push(longer.c_str());
  lockstep_range_pop();
  return 0;
}

int ManyNames() {  // More texts than the cache holds.
  for (int round = 0; round < 2; ++round)
    for (int i = 0; i < 3000; ++i) {
      const std::string name = "name " + std::to_string(i) + std::string(static_cast<std::size_t>(i % 200), '.');
      lockstep_range_push(name.c_str());
      lockstep_range_pop();
    }
  return 0;
}

int Deep() {
  lockstep_range_pop();  // Nothing to pop.
  for (int i = 0; i < 70; ++i) lockstep_range_push("deep");
  for (int i = 0; i < 70; ++i) lockstep_range_pop();
  Ranges(1);
  return 0;
}

int Full(int n) {
  Ranges(n);
  Sync("full");
  Ranges(5);
  return 0;
}

int Laps(int laps) {
  for (int i = 0, texts = 0; i < laps; ++i) {
    for (int k = 0; k < 30; ++k) {
      const std::string name = "lap " + std::to_string(texts++) + " of the ring, a name of more than one slot";
      lockstep_range_push(name.c_str());
      lockstep_range_pop();
      Ranges(k < 29 ? 3 : 10);
    }
    Sync("lap");
  }
  return 0;
}

int Threads(int threads, int n) {
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t)
    all.emplace_back([n] {
      pthread_setname_np(pthread_self(), "worker");
      Ranges(n);
    });
  for (std::thread& each : all) each.join();
  return 0;
}

// Threads that serve requests. `how`: "always", every request is to be recorded from its first call; "steps", each is a
// step.
int Serve(int threads, int requests, const std::string& how) {
  std::atomic<int> unrecorded{0};
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&] {
      for (int i = 0; i < requests; ++i) {
        if (how == "steps") lockstep_step();
        lockstep_range_push("request");
        if (lockstep_recording() == 0) ++unrecorded;
        lockstep_range_pop();
      }
    });
  for (std::thread& each : all) each.join();
  return how == "always" && unrecorded > 0 ? 1 : 0;
}

int Recycle() {
  std::thread([] { Ranges(3); }).join();
  Sync("ended");
  std::thread([] { Ranges(2); }).join();
  return 0;
}

int Fork() {
  Ranges(2);
  lockstep_range_push("open in the parent");
  const pid_t idle = fork();
  if (idle == 0) _exit(0);  // Uses nothing: leaves no trace.
  waitpid(idle, nullptr, 0);
  const pid_t busy = fork();
  if (busy == 0) {
    lockstep_step();
    Ranges(3);
    std::exit(0);
  }
  waitpid(busy, nullptr, 0);
  lockstep_range_pop();
  return 0;
}

// A forked process that does what it is told, a letter at a time, and answers whether it records.
struct Relative {
  explicit Relative(bool claims) {
    int down[2], up[2];
    if (pipe(down) != 0 || pipe(up) != 0) std::exit(1);
    pid = fork();
    if (pid == 0) {
      close(down[1]);
      if (claims) Ranges(1);
      char letter = 'r';
      while (read(down[0], &letter, 1) == 1) {
        if (letter == 'g') lockstep_start();
        if (letter == 's') lockstep_stop();
        if (letter == 'm') Ranges(1);
        const char answer = lockstep_recording() != 0 ? '1' : '0';
        if (write(up[1], &answer, 1) != 1) break;
      }
      std::exit(0);
    }
    to = down[1];
    from = up[0];
  }
  char operator()(char letter) const {
    char answer = '?';
    return write(to, &letter, 1) == 1 && read(from, &answer, 1) == 1 ? answer : '?';
  }
  ~Relative() {
    close(to);
    waitpid(pid, nullptr, 0);
  }
  pid_t pid = 0;
  int to = -1, from = -1;
};

// Which processes record after whose call. Of a pair: this process, then the other.
int Family() {
  Ranges(1);
  const auto self = [] { return lockstep_recording() != 0 ? '1' : '0'; };
  {
    const Relative child(true);
    std::printf("%c%c ", self(), child('r'));
    lockstep_stop();
    std::printf("%c%c ", self(), child('r'));
    lockstep_start();
    std::printf("%c%c ", self(), child('m'));
    const char stopped = child('s');
    std::printf("%c%c ", self(), stopped);
    lockstep_stop();
    lockstep_start();
    std::printf("%c%c\n", self(), child('r'));
    std::fflush(stdout);
  }
  {
    lockstep_stop();
    const Relative child(false);  // Has no entry before it starts recording.
    std::printf("%c%c ", self(), child('r'));
    const char started = child('g');
    std::printf("%c%c\n", self(), started);
    std::fflush(stdout);
  }
  return 0;
}

int Kill(const char* count_file) {
  const int fd = open(count_file, O_RDWR | O_CREAT, 0600);
  for (long i = 1;; ++i) {
    Ranges(1);
    if (pwrite(fd, &i, sizeof i, 0) != sizeof i) return 1;
  }
}

std::atomic<long> g_handled{0};
void OnAlarm(int) {
  lockstep_range_push("handler");
  lockstep_mark("handler mark");
  lockstep_range_pop();
  g_handled.fetch_add(1);
}

// Until so many signals have come, or the ring is half full.
int Signals(int signals) {
  struct sigaction action {};
  action.sa_handler = OnAlarm;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  itimerval timer{{0, 50}, {0, 50}};
  setitimer(ITIMER_REAL, &timer, nullptr);
  long ranges = 0;
  char name[32];
  do {
    std::snprintf(name, sizeof name, "name %ld", ranges % 500);
    lockstep_range_push(ranges % 3 == 0 ? name : "main");
    lockstep_range_pop();
    ++ranges;
  } while (g_handled.load() < signals && ranges < 400'000);
  timer = {};
  setitimer(ITIMER_REAL, &timer, nullptr);
  std::printf("%ld %ld\n", ranges, g_handled.load());
  return 0;
}

void OnTrap(int) {
  char name[32];  // New each time, so that the handler cannot use the fast path.
  std::snprintf(name, sizeof name, "handler %ld", g_handled.load());
  lockstep_range_push(name);
  lockstep_mark("handler mark");
  lockstep_range_pop();
  g_handled.fetch_add(1);
}

int Stepped(int ranges) {
  struct sigaction action {};
  action.sa_handler = OnTrap;
  sigaction(SIGTRAP, &action, nullptr);
  char name[32];
  for (int i = 0; i < ranges; ++i) {
    std::snprintf(name, sizeof name, "main %d", i % 7);
    lockstep::StepSingly(true);
    lockstep_range_push("main");
    lockstep_range_push(name);
    lockstep_range_pop();
    lockstep_mark(name);
    lockstep_range_pop();
    if (i % 16 == 0) lockstep_step();
    lockstep::StepSingly(false);
  }
  std::printf("%d %ld\n", 2 * ranges, g_handled.load());
  return 0;
}

int Window() {
  std::printf("%d", lockstep_recording());
  Ranges(1);
  lockstep_range_push("closed while off");
  lockstep_step();
  lockstep_stop();
  std::printf("%d", lockstep_recording());
  lockstep_step();
  Ranges(100);
  lockstep_range_pop();
  lockstep_range_push("opened while off");
  lockstep_start();
  std::printf("%d\n", lockstep_recording());
  Ranges(2);
  lockstep_range_pop();
  lockstep_step();
  Ranges(1);
  return 0;
}

int Errno() {
  errno = 77;
  Steps();
  Names();
  std::thread([] {
    errno = 78;
    Ranges(1);
    if (errno != 78) std::exit(1);
  }).join();
  return errno == 77 ? 0 : 1;
}

// Sleeps and waits; with a ring, or with nothing recorded that would have made one.
int Blocked(bool ring) {
  if (ring) lockstep_mark("makes a ring");
  const timespec time{0, 2'000'000};
  for (int i = 0; i < 3; ++i) nanosleep(&time, nullptr);
  sem_t semaphore;
  sem_init(&semaphore, 0, 1);
  errno = 77;
  sem_wait(&semaphore);
  timespec past{1, 0};
  if (sem_timedwait(&semaphore, &past) == 0 || errno != ETIMEDOUT) return 1;
  std::thread([&] {
    lockstep_mark("posts");
    nanosleep(&time, nullptr);  // This thread is not watched.
    sem_post(&semaphore);
  }).join();
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  errno = 77;
  for (int i = 0; i < 1000; ++i) {
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
  }
  return errno == 77 ? 0 : 1;
}

struct Late {
  ~Late() {
    if (std::getenv("LOCKSTEP_TEST_EARLY") == nullptr) return;
    lockstep_mark("after main");
    std::thread([] { lockstep_mark("thread after main"); }).join();
  }
} g_late;
__attribute__((constructor)) void Early() {
  if (std::getenv("LOCKSTEP_TEST_EARLY") != nullptr) lockstep_mark("before main");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  const int first = argc > 2 ? std::atoi(argv[2]) : 0, second = argc > 3 ? std::atoi(argv[3]) : 0;
  int result = 2;
  if (name == "nothing") result = 0;
  if (name == "steps") result = Steps();
  if (name == "names") result = Names();
  if (name == "many-names") result = ManyNames();
  if (name == "deep") result = Deep();
  if (name == "full") result = Full(first);
  if (name == "laps") result = Laps(first);
  if (name == "threads") result = Threads(first, second);
  if (name == "serve") result = Serve(first, second, argc > 4 ? argv[4] : "");
  if (name == "recycle") result = Recycle();
  if (name == "fork") result = Fork();
  if (name == "family") result = Family();
  if (name == "kill") result = Kill(argv[2]);
  if (name == "signals") result = Signals(first);
  if (name == "stepped") result = Stepped(first);
  if (name == "window") result = Window();
  if (name == "blocked") result = Blocked(first != 0);
  if (name == "errno") result = Errno();
  if (name == "ranges") Ranges(first), result = 0;
  return result;
}
