// A job for the clock truth tests: steps of half compute, half sleep, with
// collectives. Built twice: with MPI, and (LOCKSTEP_NO_MPI) without, where the
// ranges of lockstep.h are the events.
//
//   clock_app SECONDS

#include <time.h>

#include <cstdio>
#include <cstdlib>

#ifndef LOCKSTEP_NO_MPI
#include <mpi.h>
#endif

#include "runtime/lockstep.h"

namespace {

constexpr int kStepMs = 8;

long long Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

void Compute(long long ns) {
  for (const long long end = Now() + ns; Now() < end;) {
  }
}

void Sleep(long long ns) {
  const timespec time{0, static_cast<long>(ns)};
  nanosleep(&time, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  const long long end = Now() + static_cast<long long>(std::atof(argc > 1 ? argv[1] : "5") * 1e9);
  int rank = 0, steps = 0;
#ifndef LOCKSTEP_NO_MPI
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#endif
  // Until somebody's time is over; all learn it from the same all-reduce.
  for (int more = 1; more != 0; ++steps) {
    lockstep_step();
    lockstep_range_push("forward");
    Compute(kStepMs * 250'000LL);
    lockstep_range_pop();
    Sleep(kStepMs * 250'000LL);
    const int mine = Now() < end ? 1 : 0;
#ifndef LOCKSTEP_NO_MPI
    MPI_Allreduce(&mine, &more, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
#else
    more = mine;
#endif
    lockstep_range_push("backward");
    Compute(kStepMs * 250'000LL);
    lockstep_range_pop();
    Sleep(kStepMs * 250'000LL);
#ifndef LOCKSTEP_NO_MPI
    MPI_Barrier(MPI_COMM_WORLD);
#endif
  }
  lockstep_step_end();
#ifndef LOCKSTEP_NO_MPI
  MPI_Finalize();
#endif
  if (rank == 0) std::printf("done %d steps\n", steps);
  return 0;
}
