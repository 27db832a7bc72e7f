// MPI programs whose traffic is known.
//
//   app_mpi threads THREADS CALLS   MPI_THREAD_MULTIPLE: each thread all-reduces on its own communicator and passes
//                                   messages round a ring
//   app_mpi abort | exception | exit_without_finalize

#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

int Threads(int threads, int calls) {
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<MPI_Comm> comms(static_cast<std::size_t>(threads));
  for (MPI_Comm& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  std::vector<long> sums(comms.size());
  std::vector<std::thread> workers;
  for (std::size_t t = 0; t < comms.size(); ++t) {
    workers.emplace_back([&, t] {
      const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
      for (int i = 0; i < calls; ++i) {
        int mine = rank + i, all = 0, got = -1;
        MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, comms[t]);
        MPI_Sendrecv(&mine, 1, MPI_INT, next, static_cast<int>(t), &got, 1, MPI_INT, previous, static_cast<int>(t),
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        sums[t] += all + got;
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
  if (rank == 0)
    for (const long sum : sums) std::printf("%ld\n", sum);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const std::string mode = argc > 1 ? argv[1] : "";
  int code = 2;
  if (mode == "threads" && argc > 3) code = Threads(std::atoi(argv[2]), std::atoi(argv[3]));
  if (mode == "abort" || mode == "exception" || mode == "exit_without_finalize") {
    for (int i = 0; i < 10; ++i) MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) std::puts("ten barriers");
    std::fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    if (mode == "abort" && rank == 1) MPI_Abort(MPI_COMM_WORLD, 9);
    if (mode == "exception" && rank == 1) throw std::runtime_error("nobody catches this");
    if (mode == "exit_without_finalize") std::exit(8);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return code;
}
