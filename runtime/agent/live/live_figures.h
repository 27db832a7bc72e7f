#pragma once
// Compares the last steps of all ranks: the figures of `lockstep run --live`. The definitions are those of the analysis
// (docs/definitions.md), for the steps that were sampled and as far as the records contain it while the job runs: it is
// not estimated how communication and computation of a rank slow each other.

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "runtime/agent/live/live_file.h"

namespace lockstep::agent {

struct LiveFigures {
  std::int64_t ranks = 0;  // The ranks that reported in this period or the last.
  // The ranks that reported before, but not in these periods, and those that never did.
  std::vector<std::int32_t> silent;
  std::int64_t steps = 0;                        // The steps sampled; they are the same on all ranks that have any.
  std::int64_t first_step = -1, last_step = -1;  // The first and last of these.
  std::int64_t steps_ended = 0;                  // The number on the rank that is furthest behind.
  // Means over the sampled steps and over ranks. -1: no step; for wait and transfer also: in half of the
  // steps no exposed time could be split into the two.
  std::int64_t step_ns = -1, exposed_wait_ns = -1, exposed_transfer_ns = -1, exposed_unsplit_ns = -1;
  std::int64_t collectives = 0;     // The collectives whose last rank can be found, because all members were seen.
  std::int64_t ties = 0;            // Of these, those whose last two members arrived within the clocks' error.
  std::int32_t last_rank = -1;      // The rank for which the others waited longest; -1: none, or only ties.
  std::int64_t last_count = 0;      // The number of collectives at which it arrived last.
  std::int64_t last_late_ns = 0;    // The mean over these of how much later than the second to last it arrived.
  std::int64_t clock_error_ns = 0;  // The largest of the ranks' errors; -1: some rank's clock is not measured yet.
  // On the rank that is furthest behind: the step in progress and its duration so far.
  std::int64_t open_step = -1, open_ns = 0;
  std::int32_t open_rank = -1;
  double mpi_share = -1;  // The mean over the ranks for which it is known.
  // The ranks that are in MPI most and least; -1: of fewer than two it is known. Who is there least is waited for.
  std::int32_t most_mpi_rank = -1, least_mpi_rank = -1;
  double most_mpi_share = 0, least_mpi_share = 1;
  bool recording = false;
  std::uint64_t records = 0, dropped = 0;
};

// Each node numbers periods by its own wall clock, which may differ from rank 0's by seconds. Therefore a report counts
// as new if its number has changed, whatever the number is.
class LiveHearing {
 public:
  // Takes what was read now, in period `epoch` of this node, and sets LiveRank::epoch to the period of this node in
  // which its present number was read first.
  void Update(std::vector<LiveRank>& ranks, std::int64_t epoch);

 private:
  struct Heard {
    std::int64_t theirs = 0, ours = 0;
  };
  std::map<std::int32_t, Heard> heard_;
};

// `ranks`: the reports that were read, one per rank, their `epoch` by this node's clock (LiveHearing); `expected`:
// ranks of the job. `epoch`: now.
LiveFigures ComputeLiveFigures(std::span<const LiveRank> ranks, std::int32_t expected, std::int64_t epoch);

}  // namespace lockstep::agent
