#pragma once
// Messages that move only while both their ranks are inside MPI: with both halves posted they wait for the rank that
// computes.

#include <cstdint>
#include <vector>

#include "merge/match/p2p.h"

namespace lockstep::merge {

// Where the recorded times show that messages of a size wait for the other rank's next call (MovedSoonAfter of
// core/soon_after.h), moves `matched.partner_begin_ns` of who waits to that call. Not for gloo's and NCCL's messages,
// which threads and kernels of their own move.
// `partner_row`: per rank and row, the row of the partner's p2p.
void WaitForProgress(const std::vector<MatchRank>& ranks, const std::vector<std::vector<std::uint32_t>>& partner_row,
                     MatchedP2p& matched, unsigned jobs);

}  // namespace lockstep::merge
