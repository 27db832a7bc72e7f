// A program that is linked with a library that calls MPI when it is loaded (early.cc).

#include <mpi.h>

int Early();

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  for (int i = 0; i < 7; ++i) MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return Early() == 1 ? 0 : 1;
}
