#pragma once
// When the training thread was in communication of torch.distributed that no source records (gloo, ucc), as far as
// ranges in the file show it.

#include <cstdint>

#include "core/interval.h"
#include "core/schema.h"
#include "ingest/rank_files/event_reader.h"

namespace lockstep::merge {

// Rank clock. Calls (core/comm_calls.h) as long as they last; operations only while the thread ran no operator, because
// it works while one that was only posted is under way. `gpu`: the rank has kernels. Then calls count only where the
// range itself says that it is communication, because the others enqueue kernels, which are recorded.
IntervalSet UnrecordedCalls(const schema::RankTables& head, ingest::EventReader& events, std::uint32_t training,
                            bool gpu);
// The same of tables in memory.
IntervalSet UnrecordedCalls(const schema::RankTables& tables, std::uint32_t training, bool gpu);

}  // namespace lockstep::merge
