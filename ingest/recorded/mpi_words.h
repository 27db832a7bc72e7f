#pragma once
// MPI's functions in the words of the judge.

#include <cstdint>
#include <string>

#include "core/collective.h"

namespace lockstep::recorded {

// As hang::Operation has it: "all_reduce".
std::string KindText(CollectiveKind kind);
// "comm_split" of MPI_Comm_split.
std::string CallText(std::uint16_t op);
// The calls that are numbered on their parent (comms/pmpi/communicators.cc).
bool IsCreation(std::uint16_t op);
// Of several requests one is enough.
bool WaitsForAny(std::uint16_t op);
// A thread inside it hands on what its rank has sent before, also to others than those that it waits for, for as long
// as the call lasts. False for what may sit without that: calls that post or look up, files, PMIx (connecting,
// spawning, names), and one-sided synchronisation other than fences, which some components wait in without those of
// messages.
bool MovesMessages(std::uint16_t op);

}  // namespace lockstep::recorded
