#pragma once
// A format of another tool: what it takes to be read as ranks of a run. One constant of this per format, named in
// formats.def and nowhere else.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/loss.h"
#include "core/result.h"
#include "core/schema.h"
#include "ingest/map/groups.h"

namespace lockstep::ingest {

// What a look at a file's beginning and end gives. Text of gzip files is inflated; `first` never.
struct FileLook {
  std::string path;
  std::uint64_t bytes = 0;
  std::string first;       // The first bytes as they lie on disk.
  std::string head, tail;  // The tail of plain files only.
  bool gzip = false;
  int error = 0;  // An errno: why nothing can be said.
};

struct CountedLoss {
  Loss loss;
  std::uint64_t count = 1;
  std::string detail;
};

// One rank's trace in a file.
struct TracePart {
  std::uint64_t process = 0;        // The format's own number of it.
  bool shared = false;              // The file holds other ranks too.
  bool first = true;                // What is wrong with the file as a whole is said by one of them.
  std::string name;                 // Beside the file's, where it is shared: "process 4711".
  std::string session;              // What ranks of one clock have in common; "" each has its own.
  std::uint64_t bytes = 0;          // Of the file that count as this one's.
  std::vector<CountedLoss> losses;  // Of the file, found before its ranks were read: of the first part.
  std::int32_t told_rank = -1;
  std::int64_t told_world_size = 0;
};

struct TraceOptions {
  unsigned jobs = 0;
  bool python_functions = false;
  std::string step_range;       // Ranges of this name are the steps; "": those that are named like steps.
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
  std::uint64_t events = 0, read_bytes = 0, rows = 0;
  std::uint64_t kernels = 0, collectives = 0, steps = 0, data_losses = 0;
  std::vector<CountedLoss> losses;  // Also in the tables.
};

struct ImportedTrace {
  schema::RankTables tables;
  TraceSummary summary;
};

struct ForeignFormat {
  std::string_view name;     // On the command line and in files: "kineto".
  std::string_view program;  // Whose it is: "torch.profiler".
  std::string_view what;     // For help: "Traces of torch.profiler: Chrome JSON, plain or gzip".
  std::string_view write;    // How to get one: "name files that ... wrote".

  // Whether a name promises this format. Such files of a directory are looked at, and named if they are none of it.
  bool (*named_like)(std::string_view name);
  // Whether first bytes do, whatever the name; null: they never do by themselves.
  bool (*begins_like)(std::string_view first_bytes);
  // Why the file is none of this format, "" if it is one.
  std::string (*refuse)(const FileLook& look);
  // What its ranks say of themselves before they are read; null: one that says what Look found.
  Result<std::vector<TracePart>> (*parts)(const FileLook& look);
  // Bytes that the import of it works on, expected.
  std::uint64_t (*work_bytes)(const FileLook& look);
  Result<ImportedTrace> (*read)(const std::string& path, const TracePart& part, const TraceOptions& options);
  // Whether a name promises a file of the program's own that it must export first: `refuse` says how. Null: none does.
  bool (*needs_export)(std::string_view name) = nullptr;
};

}  // namespace lockstep::ingest
