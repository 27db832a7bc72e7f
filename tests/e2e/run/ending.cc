// An MPI program that ends as it is told: rank 1 is the one that goes wrong.

#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  double mine = rank, sum = 0;
  for (int i = 0; i < 20; ++i) {
    ::usleep(500);
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  }
  std::printf("rank %d sum %g\n", rank, sum);
  std::fflush(stdout);
  MPI_Barrier(MPI_COMM_WORLD);  // Or mpirun kills a rank before it has printed.
  const std::string mode = argc > 1 ? argv[1] : "well";
  if (rank == 1) {
    if (mode == "exit3") ::_exit(3);
    if (mode == "term") std::raise(SIGTERM);
    if (mode == "segv") {
      std::signal(SIGSEGV, SIG_DFL);  // Without Open MPI's backtrace: its addresses differ from run to run.
      std::raise(SIGSEGV);
    }
    if (mode == "kill") std::raise(SIGKILL);
    if (mode == "abort") MPI_Abort(MPI_COMM_WORLD, 5);
  }
  if (mode != "well" && mode != "return4") ::sleep(60);
  MPI_Finalize();
  return mode == "return4" ? 4 : 0;
}
