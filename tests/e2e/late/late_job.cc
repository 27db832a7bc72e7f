// A job in which one rank takes longer in each step, in one function: late_job CAUSE RANK SECONDS.

#include <mpi.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

namespace {

constexpr std::chrono::milliseconds kLonger{30};
using Clock = std::chrono::steady_clock;

volatile double sink = 1;

__attribute__((noinline)) void Burn() {
  const auto until = Clock::now() + kLonger;
  while (Clock::now() < until)
    for (int i = 0; i < 1000; ++i) sink = sink * 1.0000001;
}

__attribute__((noinline)) void SleepAWhile() {
  std::this_thread::sleep_for(kLonger);
  sink = 1;
}

std::mutex held;
std::atomic<int> turn{0};

__attribute__((noinline)) void TakeLock() {
  turn.store(1);
  while (turn.load() != 2) ::usleep(100);
  held.lock();
  held.unlock();
}

void Hold() {
  for (;;) {
    while (turn.load() != 1) ::usleep(100);
    const std::lock_guard<std::mutex> guard(held);
    turn.store(2);
    std::this_thread::sleep_for(kLonger);
  }
}

__attribute__((noinline)) void Work() { std::this_thread::sleep_for(kLonger); }

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const char* cause = argv[1];
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const bool late = rank == std::atoi(argv[2]);
  if (late && std::strcmp(cause, "TakeLock") == 0) std::thread(Hold).detach();
  const auto until = Clock::now() + std::chrono::seconds(std::atoi(argv[3]));
  for (int go_on = 1; go_on != 0;) {
    for (int step = 0; step < 10; ++step) {
      if (late && std::strcmp(cause, "Burn") == 0) Burn();
      if (late && std::strcmp(cause, "SleepAWhile") == 0) SleepAWhile();
      if (late && std::strcmp(cause, "TakeLock") == 0) TakeLock();
      Work();
      double sum = 1, all = 0;
      MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    go_on = Clock::now() < until;
    MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  MPI_Finalize();
  ::_exit(0);
}
