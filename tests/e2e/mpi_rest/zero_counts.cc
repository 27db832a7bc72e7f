// Collectives with counts of their own, in which the last rank gives and gets nothing and comes late: nobody needs it.
//
//   zero_counts ROUNDS
//
// Each round ends with a barrier, so that lateness does not add up.

#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "runtime/lockstep.h"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  constexpr int kCount = 64;
  const bool idle = rank == size - 1;
  const auto late = [&] { idle ? usleep(4'000) : 0; };
  std::vector<int> counts(size, kCount), places(size), pairs(size, idle ? 0 : kCount / 8), pair_places(size);
  counts[size - 1] = 0;
  pairs[size - 1] = 0;
  for (int i = 0; i < size; ++i) places[i] = i * kCount, pair_places[i] = i * kCount / 8;
  std::vector<double> own(kCount, rank + 1), all(static_cast<std::size_t>(size) * kCount);
  const int mine = counts[rank];
  double sum = 0;
  for (int round = 0; round < std::atoi(argv[1]); ++round) {
    lockstep_step();
    late();
    MPI_Allgatherv(own.data(), mine, MPI_DOUBLE, all.data(), counts.data(), places.data(), MPI_DOUBLE, MPI_COMM_WORLD);
    sum += all[kCount];
    MPI_Barrier(MPI_COMM_WORLD);
    late();
    MPI_Alltoallv(own.data(), pairs.data(), pair_places.data(), MPI_DOUBLE, all.data(), pairs.data(),
                  pair_places.data(), MPI_DOUBLE, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    late();
    MPI_Gatherv(own.data(), mine, MPI_DOUBLE, all.data(), counts.data(), places.data(), MPI_DOUBLE, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    late();
    MPI_Scatterv(all.data(), counts.data(), places.data(), MPI_DOUBLE, own.data(), mine, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  std::printf("%d %.0f\n", rank, sum);
  MPI_Finalize();
  return 0;
}
