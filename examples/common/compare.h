#pragma once
// One process that does its steps in several ways in turn: what is compared then shares memory,
// neighbours and the weather of the machine.

#include <mpi.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "examples/common/pace.h"
#include "examples/common/results.h"
#include "runtime/lockstep.h"

namespace lockstep::example {

// `rounds` times `block` steps of each way; where a round begins moves on, so that no way always follows the same.
// `use(way)` before each block, `step()` for each step. At rank 0: per way all its step times, block after block, the
// rounds in order. A step's time: from one step's end on its last rank to the next one's (ranks of one host share a
// clock). Makes one MPI_Gather.
template <typename Use, typename Step>
std::vector<std::vector<std::int64_t>> CompareWays(std::size_t ways, int rounds, int block, int rank, int ranks,
                                                   Use use, Step step) {
  std::vector<std::int64_t> marks{NowNs()};
  std::vector<std::size_t> order;
  for (int round = 0; round < rounds; ++round)
    for (std::size_t k = 0; k < ways; ++k) {
      const std::size_t way = (static_cast<std::size_t>(round) + k) % ways;
      use(way);
      for (int i = 0; i < block; ++i) {
        lockstep_step();
        step();
        marks.push_back(NowNs());
        order.push_back(way);
      }
    }
  lockstep_step_end();
  const int count = static_cast<int>(marks.size());
  std::vector<std::int64_t> all(rank == 0 ? marks.size() * static_cast<std::size_t>(ranks) : 0);
  MPI_Gather(marks.data(), count, MPI_INT64_T, all.data(), count, MPI_INT64_T, 0, MPI_COMM_WORLD);
  std::vector<std::vector<std::int64_t>> times(rank == 0 ? ways : 0);
  if (rank != 0) return times;
  std::vector<std::int64_t> ends(marks.size(), std::numeric_limits<std::int64_t>::min());
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::int64_t& end = ends[i % marks.size()];
    end = std::max(end, all[i]);
  }
  for (std::size_t i = 1; i < ends.size(); ++i) times[order[i - 1]].push_back(ends[i] - ends[i - 1]);
  return times;
}

// Two members of a report.
inline void PrintCompared(std::FILE* file, int block, const std::vector<std::string>& names,
                          const std::vector<std::vector<std::int64_t>>& times) {
  std::fprintf(file, ",\n  \"block_steps\": %d, \"compared\": {", block);
  for (std::size_t i = 0; i < times.size(); ++i) {
    std::fprintf(file, "%s\n    \"%s\": ", i == 0 ? "" : ",", names[i].c_str());
    PrintList(file, times[i], [&](std::int64_t ns) { std::fprintf(file, "%" PRId64, ns); });
  }
  std::fprintf(file, "}");
}

}  // namespace lockstep::example
