// A job for tests of capture windows: e2e_window_job STEPS US [WORD...]
//   offset=MS     rank r begins its steps r * MS ms later
//   free          no collective inside the steps, so that ranks stay apart, as far as at first:
//                 a step that began late for want of a core is followed by shorter ones
//   nosteps       no step is marked
//   count=FILE    FILE.RANK gets a byte for each step that has begun
//   kill=RANK     that rank kills itself in the middle of its steps
//   window=A:B    lockstep_stop() before the first step, lockstep_start() before step A, lockstep_stop() in step B,
//   from a thread
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "runtime/lockstep.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int steps = std::atoi(argv[1]), us = std::atoi(argv[2]);
  int offset_ms = 0, victim = -1, from = -1, until = -1;
  bool collective = true, marked = true;
  int count = -1;
  for (int i = 3; i < argc; ++i) {
    const std::string word = argv[i];
    std::sscanf(argv[i], "offset=%d", &offset_ms);
    std::sscanf(argv[i], "kill=%d", &victim);
    std::sscanf(argv[i], "window=%d:%d", &from, &until);
    if (word.starts_with("count=")) {
      const std::string file = word.substr(6) + "." + std::to_string(rank);
      count = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    }
    if (word == "free") collective = false;
    if (word == "nosteps") marked = false;
  }
  if (!collective) MPI_Barrier(MPI_COMM_WORLD);  // MPI_Init does not end at once everywhere.
  const auto begin = std::chrono::steady_clock::now() + std::chrono::milliseconds(rank * offset_ms);
  std::this_thread::sleep_until(begin);
  if (from >= 0) lockstep_stop();
  long sum = 0;
  for (int i = 0; i < steps; ++i) {
    if (i == from) std::thread(lockstep_start).join();
    if (marked) lockstep_step();
    if (count >= 0 && write(count, ".", 1) != 1) return 1;
    if (i == until) std::thread(lockstep_stop).join();
    int mine = i, all = 0;
    if (collective) MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    sum += all;
    if (collective)
      usleep(static_cast<useconds_t>(us));
    else
      std::this_thread::sleep_until(begin + (i + 1) * std::chrono::microseconds(us));
    if (rank == victim && i == steps / 2) raise(SIGKILL);
  }
  if (marked) lockstep_step_end();
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) std::printf("sum %ld\n", sum);
  MPI_Finalize();
  return 0;
}
