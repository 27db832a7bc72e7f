#pragma once
// Decides which rank each process of a slot is. No other code decides this.
//
// Proofs that a process is a rank; the first one that exists counts:
//   mpi     MPI_Init gave it a rank in a world of several
//   group   init_process_group of PyTorch did
//   env     RANK and WORLD_SIZE in its own environment that its agent does not have: something below the agent started
//   it (the slot) it is the agent's only program, or the first of them: what the launcher told the agent
// In a world of one there is no communication, so it proves nothing: an MPI that was only initialised in each worker of
// torchrun makes no rank. Where a process of the slot is a rank by itself, those that are only the slot's are its
// helpers (launchers, loaders, compilers) and no ranks.
//
// A slot may see several worlds: a job that is started again, a script that runs two. The members of one world are let
// in while all of them ask, so processes whose times of asking do not overlap are of different worlds; of two that ask
// at once with one rank, the place of their meeting tells. The last world counts, the others are said to be
// there. Of processes that only have variables the first of each rank counts: those after it may be its helpers.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trace/spool/leftover_rings.h"

namespace lockstep::trace {

enum class RankProof : std::uint8_t { kNone, kSlot, kEnvironment, kGroup, kMpi };

struct ProcessIdentity {
  RankProof proof = RankProof::kNone;
  std::int32_t rank = -1;        // -1: not a rank of the run (a helper, or a rank of an earlier world).
  std::int32_t world_size = -1;  // -1 unknown.
  // The answer of another source that does not count: "rank 3 of 8 by the environment"; "" if there is none.
  std::string instead_of;
  bool earlier = false;  // A rank of an earlier world than the one that counts.
};

// Identifies each of `processes`, in their order. `meta` is the spool's: what the launcher told the agent.
std::vector<ProcessIdentity> IdentifyProcesses(const std::vector<const ProcessState*>& processes,
                                               const std::map<std::string, std::string>& meta);

// As meta's rank_source: "mpi", "group", "env", "slot"; "" for kNone.
std::string_view NameOf(RankProof proof);

}  // namespace lockstep::trace
