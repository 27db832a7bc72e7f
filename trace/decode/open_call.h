#pragma once
// What a thread was inside of when it was last seen. A rank file has these in `meta`, as facts of the name open_call
// (core/fact.h): there are a few in the files of ranks that did not end by themselves, and none in others.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/schema.h"

namespace lockstep::trace {

enum class Awaits : std::uint8_t {
  kNothing,  // No operation that is known.
  kCollective,
  kSend,
  kReceive,   // Or a probe.
  kCreation,  // A communicator.
};

// One operation that a call waits for.
struct OpenCallFact {
  std::uint16_t op = 0;  // MpiOp, of the call.
  Awaits awaits = Awaits::kNothing;
  std::uint32_t requests = 0;                // Completion calls: given to the call. The first 16 have a fact each.
  std::int64_t begin_ns = 0;                 // Of the call; of the rank clock, like the other.
  std::int64_t posted_ns = schema::kNoTime;  // When another call began the operation; kNoTime: this call did.
  std::uint32_t comm = schema::kNone;        // Row of comms.
  std::uint64_t seq = 0;                     // Number on comm, of collectives and of calls that make communicators.
  std::uint64_t bytes = 0, count = 0;        // As in mpi_calls and collectives.
  std::uint16_t dtype = 0;                   // DataType
  bool uneven = false;
  std::int32_t peer = -1, tag = -1;      // As in mpi_calls.
  std::uint32_t caller = schema::kNone;  // Row of stacks: what called the operation.
};

std::string TextOf(const OpenCallFact& call);
// A key that is missing or is no number keeps its default.
OpenCallFact ReadOpenCall(std::string_view text);
// All of a rank file, in their order.
std::vector<OpenCallFact> OpenCallsOf(const schema::RankTables& tables);

}  // namespace lockstep::trace
