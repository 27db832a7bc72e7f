#pragma once
// Numbers collectives that have no number. Imported traces give, per process group, only
// the order of operations in each file; files begin and end at different points. This
// step aligns the members' sequences and gives the same operation the same `seq` on
// each, so that all later stages, including clock alignment, match by (comms.global_id,
// seq, start) as for captured runs. It uses the ranks' clocks only where nothing else
// decides.

#include <cstdint>
#include <vector>

#include "merge/readers/run_files.h"

namespace lockstep::merge {

// Numbers of rows that have no counterpart on other ranks: each is an instance of its own. They are larger than any
// sequence number and exact in a double.
inline constexpr std::uint64_t kAmbiguousSeq = std::uint64_t{1} << 51;  // Fits several positions.
inline constexpr std::uint64_t kNowhereSeq = std::uint64_t{1} << 52;    // Its rank's sequence does not fit the others'.

// Writes collectives.seq of all communicators with comms.identity 1 or 2; where a guessed
// group (2) proves to be several, comms.global_id and size of its parts too. Others are not
// touched. `ranks` by rank. The result does not depend on `jobs`. Returns what was left
// open (CollectiveAmbiguous), per rank; matching counts the rest.
std::vector<RunLoss> NumberCollectives(std::vector<RunRank>& ranks, unsigned jobs);

}  // namespace lockstep::merge
