#pragma once
// Relations between rows, found once a rank's tables are complete.

#include <cstdint>

#include "ingest/map/mapped.h"

namespace lockstep::ingest {

// Adds to a time; clamps to what fits.
std::int64_t Shifted(std::int64_t ns, std::int64_t base_ns);

// Adds what only the launching call contains (whether a copy was asynchronous), and counts GPU events without a
// launching call.
void TieLaunches(MappedTrace& trace);

// Nesting of the ranges on each thread.
void SetDepths(schema::RankTables& tables, unsigned jobs);

}  // namespace lockstep::ingest
