#pragma once
// Of one rank's file what says when it did something: a fraction of the whole.

#include "core/result.h"
#include "core/schema.h"
#include "merge/timeline/timeline.h"

namespace lockstep::merge {

// The head tables, and of the long ones these columns (the others are empty): mpi_calls begin, duration, thread,
// count; ranges begin, duration, thread, category, name; kernels begin, duration, work; cpu_samples whole. Some 20
// bytes a row. Errors as Timeline::ReadRank.
Result<schema::RankTables> ReadRankActivity(const Timeline& timeline, std::int32_t rank);

}  // namespace lockstep::merge
