#pragma once
// All ranks' last steps side by side: the figures of `lockstep run --live`. The
// definitions are those of the analysis (docs/definitions.md), over the steps that
// were sampled and as far as records say it while the job runs: what a rank's
// communication has in common with its work is not priced here.

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "runtime/agent/live/live_file.h"

namespace lockstep::agent {

struct LiveFigures {
  std::int64_t ranks = 0;                        // That reported in this period or the last.
  std::vector<std::int32_t> silent;              // That reported before, but not then; or never.
  std::int64_t steps = 0;                        // Sampled, the same on all ranks that have any.
  std::int64_t first_step = -1, last_step = -1;  // Of these.
  std::int64_t steps_ended = 0;                  // On the rank that is furthest behind.
  // Medians over the sampled steps, of what is the mean over ranks in each. -1: no step; of wait and transfer also: in
  // half of the steps nothing that was exposed could be told apart so.
  std::int64_t step_ns = -1, exposed_wait_ns = -1, exposed_transfer_ns = -1, exposed_unsplit_ns = -1;
  std::int64_t collectives = 0;              // Whose last arriver can be asked for: all members were seen.
  std::int64_t ties = 0;                     // Of these: the last two came within the clocks' error.
  std::int32_t last_rank = -1;               // The one that the others waited for longest; -1: none, or only ties.
  std::int64_t last_count = 0;               // Collectives that it came last to.
  std::int64_t last_late_ns = 0;             // Mean over these: how much later than the second to last.
  std::int64_t clock_error_ns = 0;           // Largest of the ranks'; -1: some rank's clock is not known yet.
  std::int64_t open_step = -1, open_ns = 0;  // Of the rank that is furthest behind: the step under way and since when.
  std::int32_t open_rank = -1;
  double mpi_share = -1;  // Mean over the ranks that know it.
  bool recording = false;
  std::uint64_t records = 0, dropped = 0;
};

// Periods are numbered by each node's own wall clock, which may be seconds from rank 0's. So a report counts as new if
// its number has changed, whatever the number is.
class LiveHearing {
 public:
  // What was read now, in period `epoch` of this node: LiveRank::epoch becomes the period of this node in which its
  // present number was read first.
  void Update(std::vector<LiveRank>& ranks, std::int64_t epoch);

 private:
  struct Heard {
    std::int64_t theirs = 0, ours = 0;
  };
  std::map<std::int32_t, Heard> heard_;
};

// `ranks`: what was read, one each, their `epoch` by this node's clock (LiveHearing); `expected`: ranks of the job.
// `epoch`: now.
LiveFigures ComputeLiveFigures(std::span<const LiveRank> ranks, std::int32_t expected, std::int64_t epoch);

}  // namespace lockstep::agent
