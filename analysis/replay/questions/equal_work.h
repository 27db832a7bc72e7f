#pragma once
// Changes the durations for the questions "without what slows rank R", where slow ranks become equal to the others, and
// "equal work", where all become equal.

#include <cstdint>
#include <vector>

#include "analysis/replay/graph/job.h"
#include "analysis/replay/graph/recorded_run.h"

namespace lockstep::replay {

// Each piece of work of `ranks` takes as long as the same piece on the other ranks that divide their step equally and,
// if there are such ranks, communicate in the same order (lower median); if none divides it so, as long as the sum of
// the others' work. In a run without steps 16 pieces between the same kinds of operations, one after the other, take
// what the same pieces of the others take, the shortest what their shortest takes, and so on.
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
