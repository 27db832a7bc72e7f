#pragma once
// The common part of reading a run of CPU and of GPU ranks for replay (host_run.cc, gpu_run.cc).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "analysis/replay/graph/recorded_run.h"
#include "core/interval.h"

namespace lockstep::replay {

// Fills ranks, and steps with their measured lengths: usable steps with consecutive numbers, the last ones of the
// longest such sequence. If none is usable the whole recording is the one step; there are none if it has no length.
// kUnsupported if it would have gaps.
Status ChooseRanksAndSteps(const merge::Timeline& timeline, const ReadRunOptions& options, RecordedRun& run);

// Fills collectives and left_out: those of the run's steps, and of `steps_beside` more on both sides, or all if it is a
// whole window. `chosen` is called for each with its row in the timeline and its index in `collectives`.
void ChooseCollectives(const merge::Timeline& timeline, std::int64_t steps_beside, RecordedRun& run,
                       const std::function<void(std::size_t row, std::uint32_t position)>& chosen);

// Rows of step_ranks: [rank * steps + step]. kUnsupported if a rank lacks a step.
Result<std::vector<std::size_t>> StepRows(const merge::Timeline& timeline, const RecordedRun& run);

// Calls `read` for each rank, several at once. Returns the error of the first rank that could not be read. `steps`:
// when a rank's replayed steps were, rank clock. Without it, or where the rank has no more rows than options.most_rows,
// `tables` are all of them; else collectives and p2p are, and of the others what an eighth of that time and two of the
// `count` steps before and after hold. Where that lacks the call that launched some GPU work, all are read.
struct StepsOfRank {
  Interval time{0, 0};
  std::size_t count = 0;
};
Status ReadRanks(
    const merge::Timeline& timeline, const ReadRunOptions& options, const RecordedRun& run,
    const std::function<void(std::size_t r, const schema::RankTables& tables, const merge::ClockMap& clock)>& read,
    const std::function<StepsOfRank(std::size_t r)>& steps = {});

}  // namespace lockstep::replay
