#pragma once
// What follows from rows side by side once a rank's tables are there.

#include <cstdint>

#include "ingest/map/mapped.h"

namespace lockstep::ingest {

// A time moved; cut to what fits.
std::int64_t Shifted(std::int64_t ns, std::int64_t base_ns);

// What only the launching call knows: whether a copy was asynchronous; and how many GPU events have none.
void TieLaunches(MappedTrace& trace);

// Nesting of the ranges on each thread.
void SetDepths(schema::RankTables& tables, unsigned jobs);

}  // namespace lockstep::ingest
