#pragma once
// `lockstep import`: trace files of all ranks, of any foreign format -> a run directory that merge
// and analyze read like a recorded one.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/loss.h"
#include "core/result.h"
#include "ingest/inputs.h"

namespace lockstep::ingest {

struct ImportProgress {
  std::size_t files_done = 0, files = 0;
  std::uint64_t bytes_done = 0, bytes = 0;  // Bytes of the files as they are on disk.
  std::uint64_t read_bytes = 0;             // Bytes of finished files.
};

struct ImportOptions {
  std::string run_dir;  // Made if absent; what an earlier run left in it is replaced.
  unsigned jobs = 0;
  bool python_functions = false;
  std::string step_range;                               // As in TraceOptions.
  std::function<void(const ImportProgress&)> progress;  // One call at a time, from any thread.
};

struct ImportLoss {
  std::int32_t rank;  // -1 the whole import.
  Loss loss;
  std::uint64_t count;
  std::string detail;
};

struct ImportResult {
  std::size_t ranks = 0;
  std::int64_t world_size = 0;
  std::uint64_t events = 0, rows = 0, kernels = 0, collectives = 0, steps = 0;
  std::uint64_t read_bytes = 0;
  std::vector<ImportLoss> losses;  // Of all ranks, by rank.
  bool incomplete = false;         // At least one loss is a loss of data.
};

// Every file that can be read is used. kMalformed: none was a trace; kIo.
Result<ImportResult> Import(const TraceFiles& traces, const ImportOptions& options);

// Changes whenever an import would give another result: files, their sizes and times, options, this version. Stored in
// manifest.json as "inputs".
std::string InputsKey(const TraceFiles& traces, bool python_functions, std::string_view step_range);
// The key of an imported run; "" for other runs and for unfinished imports.
std::string InputsOf(const std::string& run_dir);

// Removes what an earlier run or import left in `run_dir`, and nothing else.
void ClearRun(const std::string& run_dir);

// Moves a finished import from one directory to another of the same file system, where it replaces what ClearRun
// removes; manifest.json comes last. kIo.
Status MoveRun(const std::string& from, const std::string& to);
// Whether MoveRun is at work on `run_dir`, or was killed while it was: there is no whole run then.
bool IsMovingRun(const std::string& run_dir);

}  // namespace lockstep::ingest
