#pragma once
// What all ranks of a run recorded: the intersection of their capture windows, by step
// numbers where every rank has them, else by time.

#include <cstdint>
#include <vector>

#include "core/schema.h"
#include "merge/match/collectives.h"
#include "merge/readers/run_files.h"
#include "merge/steps/steps.h"
#include "merge/timeline/rank_pass.h"

namespace lockstep::merge {

// The rank's windows, rank clock, in order. Files without the table: none.
std::vector<RecordedWindow> WindowsOf(const schema::RankTables& head);

// Whether recording was not on from the rank's begin to its end: windows were requested, or a limit or lockstep_stop
// ended it.
bool RecordedInParts(const schema::RankTables& head);

struct JobWindows {
  bool in_parts = false;  // On some rank.
  schema::TlWindows table;
  std::int64_t outside_steps = 0;
  std::vector<RunLoss> losses;
};

// `ranks` contain their windows. If no rank was recorded in parts: one row, no losses.
JobWindows CommonWindows(const std::vector<MatchRank>& ranks, const JobSteps& steps);

// The analysis window's stretches: the common steps between `first_step` and `last_step`
// in each row of the table; without steps the rows themselves. Empty: no intersection.
std::vector<AnalysisPart> AnalysisParts(const JobWindows& windows, const std::vector<MatchRank>& ranks,
                                        const JobSteps& steps, std::int64_t first_step, std::int64_t last_step);

}  // namespace lockstep::merge
