#include "merge/mpi/mpi_team.h"

#include <mpi.h>

#include <algorithm>

#include "merge/rules/match.h"

namespace lockstep::merge {

MpiTeam::MpiTeam(int& argc, char**& argv) {
  int provided = 0, index = 0, count = 1;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &index);
  MPI_Comm_size(MPI_COMM_WORLD, &count);
  index_ = static_cast<unsigned>(index);
  count_ = static_cast<unsigned>(count);
}

MpiTeam::~MpiTeam() { MPI_Finalize(); }

std::vector<std::string> MpiTeam::Share(const std::string& bytes) {
  std::vector<std::uint64_t> sizes(count_);
  const std::uint64_t own = bytes.size();
  MPI_Allgather(&own, 1, MPI_UINT64_T, sizes.data(), 1, MPI_UINT64_T, MPI_COMM_WORLD);
  std::vector<std::string> all(count_);
  for (unsigned from = 0; from < count_; ++from) {
    all[from].resize(sizes[from]);
    if (from == index_) all[from] = bytes;
    for (std::uint64_t at = 0; at < sizes[from]; at += rules::kMpiPieceBytes)
      MPI_Bcast(all[from].data() + at, static_cast<int>(std::min(rules::kMpiPieceBytes, sizes[from] - at)), MPI_BYTE,
                static_cast<int>(from), MPI_COMM_WORLD);
  }
  return all;
}

}  // namespace lockstep::merge
