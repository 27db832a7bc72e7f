#pragma once
// Which rank a file is, of how many, and in which groups is decided when all files are read.

#include <cstdint>
#include <string>

#include "core/result.h"
#include "core/schema.h"
#include "ingest/foreign.h"
#include "ingest/inputs.h"

namespace lockstep::ingest {

// The tables of the rank file at `path`, which was written with other assumptions, as they are with what was decided.
// `source`: the trace, for the user. The summary's losses and groups are brought up to date, too.
Result<schema::RankTables> AsDecided(const std::string& path, const PlannedRank& planned, std::int64_t world,
                                     const std::string& source, TraceSummary& summary);

}  // namespace lockstep::ingest
