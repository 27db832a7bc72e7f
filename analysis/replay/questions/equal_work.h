#pragma once
// Changes the durations for the questions "without what slows rank R", where slow ranks become equal to the others, and
// "equal work", where all become equal.

#include <cstdint>
#include <vector>

#include "analysis/replay/graph/job.h"
#include "analysis/replay/graph/recorded_run.h"

namespace lockstep::replay {

// Each piece of work of `ranks` takes as long as the same piece on the other ranks that divide their step equally and
// communicate in the same order (lower median). If none does the latter their sum counts, which all pieces follow in
// proportion; if none divides it so, that of all others.
void EqualiseWork(const RecordedRun& run, const std::vector<std::int32_t>& ranks, Job& job);

// Over whom work is spread.
enum class Spread : std::uint8_t {
  kOverAll,    // A rank that divides its step as no other does takes the mean of all ranks' sums: as the stages of a
               // pipeline, which could have more or fewer layers.
  kOverAlike,  // Such a rank, and one that works less than half as long as the rank in the middle, has a task of its
               // own and keeps it: as one that collects what the others compute.
};

// Distributes the same work evenly: each piece of work of every rank takes the mean over the ranks that divide this
// step equally. No work is removed. Returns whether the two ways may differ.
bool EvenOutWork(const RecordedRun& run, Spread spread, Job& job);

}  // namespace lockstep::replay
