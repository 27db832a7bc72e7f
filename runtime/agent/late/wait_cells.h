#pragma once
// What the agents of a job tell each other of waiting: one small file in the run directory with a cell for each rank,
// which its agent writes and all others read. There are no connections and nothing waits; agents that do not share the
// directory do not see each other.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/agent/late/wait_sums.h"

namespace lockstep::agent {

inline constexpr std::size_t kCellSums = 4;

struct WaitCell {
  std::int32_t rank = -1;
  std::int32_t compare_with = -1;  // This rank is late, and that one's stacks are wanted for comparison.
  std::uint64_t beat = 0;          // Another one each time: a cell that does not change is of an agent that has ended.
  std::array<WaitSum, kCellSums> sums{};  // The largest; count 0: none.
};

class WaitCells {
 public:
  // `ranks`: of the job.
  WaitCells(const std::string& directory, std::int32_t rank, std::int32_t ranks);

  // Leaves this rank's cell, and returns those of the ranks that it may be compared with, its own left out: of a very
  // large job those with numbers near its own.
  std::vector<WaitCell> Exchange(const WaitCell& own) const;
  // Clears its cell; the last one removes the file.
  void Leave() const;

  // How often agents look, so that all of a large job's together ask the file system for little.
  std::int64_t period_ns() const;

 private:
  std::string path_;
  std::int32_t rank_, ranks_, first_, count_ = 1;  // Of those that it reads.
};

}  // namespace lockstep::agent
