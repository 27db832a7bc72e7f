#pragma once
// Converts one process of a report to the tables of one rank.

#include <string>
#include <vector>

#include "core/result.h"
#include "ingest/foreign.h"

namespace lockstep::nsys {

// The processes that are ranks: those that MPI numbered; else those with GPU activity; else those with any events.
Result<std::vector<ingest::TracePart>> RanksOf(const std::string& path);

Result<ingest::ImportedTrace> ImportRank(const std::string& path, const ingest::TracePart& part,
                                         const ingest::TraceOptions& options);

}  // namespace lockstep::nsys
