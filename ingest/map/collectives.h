#pragma once
// Finds which kernels communicate, what they carry and for which group: makes rows of collectives and p2p from kernels,
// their arguments and the operations that launched them.

#include <cstdint>
#include <string_view>
#include <vector>

#include "ingest/map/groups.h"
#include "ingest/map/mapped.h"

namespace lockstep::ingest {

struct CommunicationFacts {
  std::uint64_t without_group = 0;       // Rows whose group was guessed or taken from their stream.
  std::uint64_t in_several_kernels = 0;  // Operations that took more than one kernel.
  std::uint64_t grouped = 0;             // Operations that shared a kernel with others.
  std::vector<RankGroup> groups;         // Of comms, row by row.
};

// Fills comms, comm_members, collectives, p2p and kernels.work. `rank` -1: unknown.
CommunicationFacts FindCollectives(MappedTrace& trace, std::string_view distributed_info, std::int32_t rank,
                                   std::int64_t world_size);

// The lowest rank that the operations themselves contain: of a collective of all ranks whose arguments include the
// caller's rank. -1: none does.
std::int32_t RankFromOperations(const MappedTrace& trace, std::int64_t world_size);

}  // namespace lockstep::ingest
