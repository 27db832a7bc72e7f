#pragma once
// How many collectives lack members or disagree, and what the losses say of the first of them.

#include <cstdint>
#include <vector>

#include "merge/match/collectives.h"

namespace lockstep::merge {

// Why an instance lacks a member.
struct Lack {
  enum Why : std::uint8_t {
    kNothing,      // It lacks none.
    kCut,          // Windows, deaths and missing files explain it.
    kOutside,      // It lies outside of what some rank recorded.
    kOpen,         // Imported: it fits several places in the other ranks' order.
    kFitsNowhere,  // Imported: it fits none.
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
