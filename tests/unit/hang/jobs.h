#pragma once
// Small jobs, written down by hand: who is where.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hang/judge.h"
#include "hang/progress.h"

namespace lockstep::hang {

// A call with what the comparison of calls looks at.
inline Operation Call(std::int64_t sequence, const std::string& kind = "all_reduce", std::int64_t elements = 100) {
  Operation call;
  call.sequence = sequence;
  call.kind = kind;
  call.type = "Float";
  call.elements_in = call.elements_out = elements;
  return call;
}

// A rank that has entered all collectives up to `entered` and completed all up to `completed`.
inline Member At(std::int32_t rank, std::int64_t entered, std::int64_t completed) {
  Member member{.rank = rank, .known = true, .entered = entered, .completed = completed};
  for (std::int64_t sequence = completed + 1; sequence <= entered; ++sequence) member.calls.push_back(Call(sequence));
  return member;
}
inline Member Unseen(std::int32_t rank) { return {.rank = rank}; }

inline Operation Message(const std::string& kind, std::int32_t peer, std::int64_t elements = 10) {
  Operation call = Call(kNotKnown, kind, elements);
  call.peer = peer;
  return call;
}

inline Group Named(const std::string& name, std::vector<Member> members) {
  return {.name = name, .members = std::move(members)};
}

// Of all ranks that the groups name; those that no group knows are without a dump.
inline Progress JobOf(std::vector<Group> groups) {
  Progress progress{.groups = std::move(groups)};
  for (std::int32_t rank = 0; rank < 64; ++rank) {
    bool known = false;
    for (const Group& group : progress.groups)
      for (const Member& member : group.members) known |= member.rank == rank && member.known;
    if (known) progress.ranks.push_back({.rank = rank});
  }
  return progress;
}

}  // namespace lockstep::hang
