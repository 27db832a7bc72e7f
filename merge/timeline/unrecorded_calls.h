#pragma once
// Communication of torch.distributed that no source records (gloo, ucc), as far as ranges in the file show it.

#include <cstdint>

#include "core/interval.h"
#include "core/schema.h"
#include "ingest/rank_files/event_reader.h"

namespace lockstep::merge {

// Rank clock.
struct UnrecordedComm {
  // Operations in flight (core/comm_calls.h), whichever threads carry them. None where the rank has rows of what its
  // host communicated, because they are those.
  IntervalSet operations;
  // The training thread in calls, and operations in flight while neither it nor a thread of the backward pass runs an
  // operator: what is only handed over is under way while they work.
  IntervalSet waiting;

  IntervalSet InFlight() const { return Unite(operations, waiting); }
  IntervalSet AwaitedOperations() const { return Intersect(operations, waiting); }
};

// `gpu`: the rank has kernels. Then calls count only where the range itself says that it is communication, because the
// others enqueue kernels, which are recorded.
UnrecordedComm FindUnrecordedComm(const schema::RankTables& head, ingest::EventReader& events, std::uint32_t training,
                                  bool gpu);
// The same of tables in memory.
UnrecordedComm FindUnrecordedComm(const schema::RankTables& tables, std::uint32_t training, bool gpu);

}  // namespace lockstep::merge
