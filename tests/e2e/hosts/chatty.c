// A program that leaves much: usage: chatty RANK CALLS [STEP_MS [FAILS [CODE]]]. Ranks from RANK on make CALLS calls
// that involve nobody else. Some steps with all ranks come before, STEP_MS apart, and at the end all meet. The rank
// FAILS ends before that, with exit code CODE (3).
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, sum = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int talks = argc >= 3 && rank >= atoi(argv[1]), calls = argc >= 3 ? atoi(argv[2]) : 0;
  for (int step = 0; step < 20; ++step) {
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (argc > 3) usleep(1000u * (unsigned)atoi(argv[3]));
  }
  for (int call = 0; talks && call < calls; ++call) MPI_Barrier(MPI_COMM_SELF);
  if (argc > 4 && rank == atoi(argv[4])) _exit(argc > 5 ? atoi(argv[5]) : 3);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("sum %d\n", sum);
  MPI_Finalize();
  return 0;
}
