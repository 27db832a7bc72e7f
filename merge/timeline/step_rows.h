#pragma once
// Joins the rows that the ranks' passes made of their steps: the largest table of a run of thousands of ranks.

#include <vector>

#include "core/schema.h"
#include "merge/timeline/rank_pass.h"

namespace lockstep::merge {

// All ranks' rows, by step number, then rank. Takes them out of the results, a column at a time, so that no more than
// one column is there twice. Columns that are zero throughout (LeaveOutZeros) come back as zeros.
schema::TlStepRanks StepRankTable(std::vector<RankPassResult>& ranks);
// Likewise; the windows' rows (index -1) first.
schema::TlStepPhases StepPhaseTable(std::vector<RankPassResult>& ranks);

// Empties columns of a rank's rows that hold only zeros, which StepRankTable understands; never the number of the step
// or the rank.
void LeaveOutZeros(schema::TlStepRanks& rows);

}  // namespace lockstep::merge
