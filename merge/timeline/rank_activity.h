#pragma once
// One rank's own file: opened completely, or only the columns that show when the rank did something, a small part of
// the file.

#include <cstdint>
#include <functional>
#include <memory>

#include "core/result.h"
#include "core/schema.h"
#include "merge/timeline/timeline.h"

namespace lockstep::ingest {
class RankSource;
}

namespace lockstep::merge {

// The part of the file that belongs to the rank. kNotFound if the run has no file for it.
Result<std::unique_ptr<ingest::RankSource>> OpenRank(const Timeline& timeline, std::int32_t rank);

// The head tables, and of the long ones these columns (the others are empty): mpi_calls begin, duration, thread,
// op, count; ranges begin, duration, thread, category, name; kernels begin, duration, work; cpu_samples whole. Some 20
// bytes a row. Errors as Timeline::ReadRank.
Result<schema::RankTables> ReadRankActivity(const Timeline& timeline, std::int32_t rank);

// Returns the head tables. `each` gets them and the rank's kernels, a piece at a time so that memory does not grow with
// what was recorded: begin, duration, work and name, the other columns are empty. Pieces that cannot be read are left
// out. Errors as Timeline::ReadRank, before the first piece.
Result<schema::RankTables> WalkRankKernels(
    const Timeline& timeline, std::int32_t rank,
    const std::function<void(const schema::RankTables& head, const schema::Kernels& rows)>& each);

}  // namespace lockstep::merge
