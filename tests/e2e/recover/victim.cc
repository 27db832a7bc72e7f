// An MPI job that waits to be killed: each rank marks, says in a file how many marks it has committed, and meets the
// others now and then. Its own count is the truth that a recovered trace is compared with.
//
//   victim COUNT_FILE_PREFIX [SECONDS]
// PREFIX.RANK holds, as 64-bit words: marks committed, its process id, its parent's (the agent's).

#include <fcntl.h>
#include <mpi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "runtime/lockstep.h"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int fd = ::open((std::string(argv[1]) + "." + std::to_string(rank)).c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
  if (fd < 0 || ::ftruncate(fd, 4096) != 0) return 2;
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return 2;
  auto* words = static_cast<std::atomic<std::uint64_t>*>(memory);
  words[1] = static_cast<std::uint64_t>(::getpid());
  words[2] = static_cast<std::uint64_t>(::getppid());
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(argc > 2 ? std::atof(argv[2]) : 1e6);
  // Rank 0's clock decides for all.
  for (std::uint64_t marks = 0, go = 1; go != 0;) {
    lockstep_step();
    for (int i = 0; i < 50; ++i) {
      lockstep_mark("mark");
      words[0].store(++marks, std::memory_order_release);
    }
    ::usleep(500);
    go = std::chrono::steady_clock::now() < end;
    MPI_Bcast(&go, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  }
  return MPI_Finalize();
}
