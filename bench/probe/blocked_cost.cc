// What recording blocked time costs a thread, per call.
//
//   blocked_cost [SECONDS_PER_ROW]
//
// The program starts itself without the probe, with it and --blocked off, and with it; these take turns, and the
// medians count. Calls that block are measured by the thread's CPU time, because how long they block varies more than
// what is looked for.

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/lockstep.h"
#include "tests/unit/runtime/probe/test_segment.h"

extern char** environ;

namespace {

using namespace lockstep;

double NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

double PerCallNs(double seconds, int calls, const std::function<void(int)>& many) {
  std::vector<double> samples;
  const double until_ns = NowNs() + seconds * 1e9;
  do {
    const double begin_ns = NowNs();
    many(calls);
    samples.push_back((NowNs() - begin_ns) / calls);
  } while (NowNs() < until_ns);
  return MedianOf(std::move(samples));
}

struct Row {
  const char* name;
  int calls;
  void (*many)(int calls);
};
pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t g_condition = PTHREAD_COND_INITIALIZER;
pthread_barrier_t g_barrier;
sem_t g_semaphore;
int g_zero = -1;

constexpr Row kRows[] = {
    {"pthread_mutex_lock and _unlock, free", 1000,
     [](int calls) {
       for (int i = 0; i < calls; ++i) pthread_mutex_lock(&g_mutex), pthread_mutex_unlock(&g_mutex);
     }},
    {"sem_wait and sem_post, free", 1000,
     [](int calls) {
       for (int i = 0; i < calls; ++i) sem_post(&g_semaphore), sem_wait(&g_semaphore);
     }},
    {"pthread_cond_signal, nobody waits", 1000,
     [](int calls) {
       for (int i = 0; i < calls; ++i) pthread_cond_signal(&g_condition);
     }},
    {"read of a byte that is there", 1000,
     [](int calls) {
       char byte = 0;
       for (int i = 0; i < calls; ++i)
         if (read(g_zero, &byte, 1) != 1) std::abort();
     }},
    {"pthread_barrier_wait of one thread", 1000,
     [](int calls) {
       for (int i = 0; i < calls; ++i) pthread_barrier_wait(&g_barrier);
     }},
    // Long enough for a record, and steadier than anything that sleeps.
    {"read of 1 MiB of zeros", 20,
     [](int calls) {
       static char bytes[1 << 20];
       for (int i = 0; i < calls; ++i)
         if (read(g_zero, bytes, sizeof bytes) <= 0) std::abort();
     }},
};
constexpr int kRowCount = sizeof kRows / sizeof kRows[0];

int Child(int row, double seconds, bool watched) {
  sem_init(&g_semaphore, 0, 0);
  pthread_barrier_init(&g_barrier, nullptr, 1);
  g_zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  lockstep_mark("makes a ring");
  const auto measure = [&] { std::printf("%.2f\n", PerCallNs(seconds, kRows[row].calls, kRows[row].many)); };
  if (watched)
    measure();
  else
    std::thread(measure).join();
  return 0;
}

std::string Directory() { return std::filesystem::read_symlink("/proc/self/exe").parent_path().string(); }

enum Variant { kBare, kOff, kOn, kBareOther, kUnwatched, kVariants };

double RunChild(int row, const std::string& seconds, Variant variant) {
  probe::TestSegmentOptions options;
  options.main_ring_slots = 1 << 18;
  options.blocked = variant != kOff;
  probe::TestSegment segment(options);
  std::vector<std::string> added;
  if (variant != kBare && variant != kBareOther)
    added = {"LOCKSTEP_SEGMENT=" + segment.path(), "LD_PRELOAD=" + Directory() + "/liblockstep.so"};
  std::vector<char*> environment;
  for (char** each = environ; *each != nullptr; ++each) environment.push_back(*each);
  for (std::string& each : added) environment.push_back(each.data());
  environment.push_back(nullptr);
  std::string self = Directory() + "/blocked_cost", number = std::to_string(row), length = seconds,
              watched = variant >= kBareOther ? "0" : "1", child = "--child";
  char* words[] = {self.data(), child.data(), number.data(), length.data(), watched.data(), nullptr};
  int out[2];
  posix_spawn_file_actions_t actions;
  if (pipe(out) != 0 || posix_spawn_file_actions_init(&actions) != 0) return 0;
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  pid_t pid = 0;
  const bool started = posix_spawn(&pid, words[0], &actions, nullptr, words, environment.data()) == 0;
  close(out[1]);
  char text[64] = {};
  if (!started || read(out[0], text, sizeof text - 1) <= 0) std::fprintf(stderr, "the child says nothing\n");
  close(out[0]);
  if (started) waitpid(pid, nullptr, 0);
  return std::atof(text);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 5) return Child(std::atoi(argv[2]), std::atof(argv[3]), argv[4][0] == '1');
  constexpr int kRounds = 7;
  const std::string seconds = std::to_string((argc > 1 ? std::atof(argv[1]) : 2.0) / (kRounds * kVariants));
  std::printf("%-40s %10s %22s %22s %22s\n", "ns per call", "bare", "--blocked off adds", "on adds",
              "another thread: adds");
  for (int row = 0; row < kRowCount; ++row) {
    std::vector<double> of[kVariants];
    for (int round = 0; round < kRounds; ++round)
      for (int variant = 0; variant < kVariants; ++variant)
        of[variant].push_back(RunChild(row, seconds, static_cast<Variant>(variant)));
    const double bare = MedianOf(of[kBare]);
    std::printf("%-40s %10.1f %22.1f %22.1f %22.1f\n", kRows[row].name, bare, MedianOf(of[kOff]) - bare,
                MedianOf(of[kOn]) - bare, MedianOf(of[kUnwatched]) - MedianOf(of[kBareOther]));
  }
  return 0;
}
