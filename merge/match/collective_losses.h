#pragma once
// Counts collectives that lack members or whose members disagree, and describes the first of them in the losses.

#include <cstdint>
#include <vector>

#include "merge/match/collectives.h"

namespace lockstep::merge {

// Why an instance lacks a member.
struct Lack {
  enum Why : std::uint8_t {
    kNothing,      // No member is missing.
    kCut,          // Windows, ranks that died, and missing files explain it.
    kOutside,      // Some rank did not record that time.
    kOpen,         // Imported: it fits several positions in the other ranks' order.
    kFitsNowhere,  // Imported: it fits no position.
    kMember,       // Some member does not know the communicator.
    kRank,         // `rank` should have it.
  } why = kNothing;
  std::int32_t rank = -1;
};

// Counts `lacks` (per instance) as unmatched, cut and outside, with the loss.
void CountMissing(const std::vector<Lack>& lacks, MatchedCollectives& matched);
// Counts the instances whose `mismatch` is set, and `doubled` rows beside them, with the losses.
void CountMismatches(const std::vector<MatchRank>& ranks, std::uint64_t doubled, MatchedCollectives& matched);

}  // namespace lockstep::merge
