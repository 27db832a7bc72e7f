#pragma once
// How far each rank of a recorded run was when it was last seen, from its rank files and spools.

#include <cstdint>
#include <vector>

#include "core/schema.h"
#include "ingest/progress_format.h"
#include "ingest/rank_files/rank_source.h"

namespace lockstep::recorded {

struct RecordedRank {
  std::int32_t rank = -1;
  bool running = false;  // Its agent still writes.
  const ingest::RankSource* source = nullptr;
  const schema::RankTables* head = nullptr;  // What ReadHead gave.
};

// `world_size`: ranks of the job; those that are not among `ranks` are missing. `least_wait_ns`: what was open for less
// is no wait (hang::JudgeOptions).
ingest::ReadProgress ProgressOf(const std::vector<RecordedRank>& ranks, std::int32_t world_size,
                                std::int64_t least_wait_ns, unsigned jobs);

}  // namespace lockstep::recorded
