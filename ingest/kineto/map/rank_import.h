#pragma once
// Converts one trace file to the tables of its rank, or of the ranks whose traces a tool merged into it.

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "ingest/foreign.h"
#include "ingest/kineto/read/trace_reader.h"

namespace lockstep::ingest {

// kMalformed: not a trace; kUnsupported: of ranks that cannot be told apart; errors of reading.
Result<std::vector<ImportedTrace>> ImportTrace(const std::string& path, const TraceOptions& options);

// The same of JSON text in memory.
Result<std::vector<ImportedTrace>> ImportTraceText(std::string_view json, const TraceOptions& options);

// Of events in memory, as if one file had given them (tests).
Result<std::vector<ImportedTrace>> ImportEvents(std::span<const std::vector<kineto::Event>> batches,
                                                const kineto::ReadResult& read, const TraceOptions& options);

}  // namespace lockstep::ingest
