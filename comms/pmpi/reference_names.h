#pragma once
// Where rank 0's agent is, told by MPI's own name service (MPI_Publish_name, MPI_Lookup_name), for launchers without
// PMIx over which ranks could agree to more (docs/decisions/reference-by-launcher.md).
//
// Neither call is collective: a rank asks the launcher, which keeps the names of its own job, and no other rank has to
// do anything. What a rank is told, or is not, changes nothing that it does with MPI.

#include <cstdint>

#include "core/reference.h"

namespace lockstep::pmpi {

// Rank 0: says it to whoever asks, or that there is nothing to say, so that nobody waits for it. Inside MPI_Init.
void TellReference(std::uint64_t run_hash, const Reference& own);
// Another rank: asks until `deadline_ns` (RawNs). False: nothing was told. Inside MPI_Init.
bool AskForReference(std::uint64_t run_hash, std::int64_t deadline_ns, Reference& reference);
// Rank 0, before PMPI_Finalize: takes back what it told. Does nothing if that is nothing.
void TakeReferenceBack();

}  // namespace lockstep::pmpi
