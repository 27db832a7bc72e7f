#pragma once
// Finds, for matching, which ranks have rows on which communicator.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "merge/match/collectives.h"
#include "merge/readers/run_files.h"

namespace lockstep::merge {

// One rank's rows on one communicator.
struct RankOnComm {
  std::uint32_t rank;               // Index into the ranks given.
  std::uint32_t comm;               // Row of the rank's comms.
  std::int32_t comm_rank;           // The rank's number on the communicator.
  std::vector<std::uint32_t> rows;  // Of its collectives, by number.
  std::size_t numbered = 0;  // The first so many have a number that identifies the same operation on other ranks.
};

struct CommGroup {
  std::uint64_t id = 0;
  std::uint8_t function = 0;  // See KeyFunction.
  std::uint32_t size = 0;     // Members; of an inter-communicator: ranks that were seen to have it.
  bool inter = false;
  bool torch = false;             // A group of torch.distributed.
  bool ordered = false;           // Numbered by NumberCollectives: sizes may be unknown (0).
  std::vector<RankOnComm> ranks;  // By rank.
};

// Communicators of all ranks, by global id and function. Adds those that could not be identified to `losses`.
std::vector<CommGroup> GroupByComm(const std::vector<MatchRank>& ranks, unsigned jobs, std::vector<RunLoss>& losses);

}  // namespace lockstep::merge
