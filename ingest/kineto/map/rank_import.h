#pragma once
// One trace file -> the tables of one rank.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/loss.h"
#include "core/result.h"
#include "core/schema.h"
#include "ingest/kineto/read/trace_reader.h"
#include "ingest/map/groups.h"

namespace lockstep::import {

struct TraceOptions {
  unsigned jobs = 0;
  bool python_functions = false;
  std::int32_t rank = -1;       // As decided for the run; -1: what the trace says, else unknown.
  std::int64_t world_size = 0;  // Likewise; 0: what the trace says.
  std::string rank_from;        // What gave the rank instead: "its name".
  std::string source;           // Name of the file as the user gave it.
  std::string run_id;
  std::function<void(std::uint64_t done_bytes, std::uint64_t file_bytes)> progress;
};

// What all ranks together are decided by, once the file itself is written.
struct TraceSummary {
  std::int32_t told_rank = -1;
  std::int32_t operations_rank = -1;  // From the arguments of its collectives, -1 they do not say.
  std::int64_t told_world_size = 0;
  std::string backend;
  std::vector<RankGroup> groups;  // Of comms, row by row.
  std::int64_t begin_ns = 0, end_ns = 0;
  std::uint64_t events = 0, json_bytes = 0, rows = 0;
  std::uint64_t kernels = 0, collectives = 0, steps = 0, data_losses = 0;
  std::vector<kineto::Defect> losses;  // Also in the tables.
};

struct ImportedTrace {
  schema::RankTables tables;
  TraceSummary summary;
};

// kMalformed: not a trace; errors of reading.
Result<ImportedTrace> ImportTrace(const std::string& path, const TraceOptions& options);

// The same of JSON text in memory.
Result<ImportedTrace> ImportTraceText(std::string_view json, const TraceOptions& options);

// Of events in memory, as if one file had given them (tests).
ImportedTrace ImportEvents(std::span<const std::vector<kineto::Event>> batches, const kineto::ReadResult& read,
                           const TraceOptions& options);

}  // namespace lockstep::import
