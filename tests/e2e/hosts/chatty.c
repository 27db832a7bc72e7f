// A program that leaves much: usage: chatty RANK CALLS. Ranks from RANK on make CALLS calls that involve nobody else.
// Some steps with all ranks come before, and at the end all meet.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, sum = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int talks = argc == 3 && rank >= atoi(argv[1]), calls = argc == 3 ? atoi(argv[2]) : 0;
  for (int step = 0; step < 20; ++step) MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  for (int call = 0; talks && call < calls; ++call) MPI_Barrier(MPI_COMM_SELF);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("sum %d\n", sum);
  MPI_Finalize();
  return 0;
}
