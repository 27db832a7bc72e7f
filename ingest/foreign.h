#pragma once
// Describes a format of another tool: everything that is needed to read it as ranks of a run. Each format defines one
// constant of this type, which is named in formats.def only.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/loss.h"
#include "core/result.h"
#include "core/schema.h"
#include "ingest/map/groups.h"
#include "ingest/told_group.h"

namespace lockstep::ingest {

// The beginning and end of a file. Text of gzip files is inflated, except `first`.
struct FileLook {
  std::string path;
  std::uint64_t bytes = 0;
  std::string first;       // The first bytes as they are on disk.
  std::string head, tail;  // The tail of plain files only.
  bool gzip = false;
  int error = 0;  // An errno: why the file cannot be examined.
};

struct CountedLoss {
  Loss loss;
  std::uint64_t count = 1;
  std::string detail;
};

// One rank's trace in a file.
struct TracePart {
  std::uint64_t process = 0;  // The format's own number for it.
  bool shared = false;        // The file contains other ranks too.
  bool first = true;          // Only one of the parts reports what is wrong with the file as a whole.
  std::string name;           // Appended to the file's name if the file is shared: "process 4711".
  std::string session;        // The same for ranks with a common clock; "": each has its own.
  std::uint64_t bytes = 0;    // The share of the file's bytes that counts for this rank.
  // Losses of the file that were found before its ranks were read; in the first part only.
  std::vector<CountedLoss> losses;
  std::int32_t told_rank = -1;
  std::int64_t told_world_size = 0;
};

struct TraceOptions {
  unsigned jobs = 0;
  bool python_functions = false;
  std::string step_range;       // Ranges of this name are the steps; "": ranges that are named like steps.
  std::int32_t rank = -1;       // As decided for the run; -1: the trace's own value, else unknown.
  std::int64_t world_size = 0;  // Likewise; 0: the trace's own value.
  std::string rank_from;        // The source of the rank if it is not the trace: "its name".
  bool rank_guessed = false;    // Nothing tells it.
  std::string source;           // Name of the file as the user gave it.
  std::string run_id;
  std::function<void(std::uint64_t done_bytes, std::uint64_t file_bytes)> progress;
};

// The facts from which all ranks together are decided, once the file itself is written.
struct TraceSummary {
  std::int32_t told_rank = -1;
  std::int32_t operations_rank = -1;  // From the arguments of its collectives; -1 if they do not contain it.
  std::int64_t told_world_size = 0;
  std::string backend, nccl_version, host;  // "": it does not contain it.
  std::vector<ToldGroup> told_groups;       // That the trace names with their members.
  std::vector<RankGroup> groups;            // Of comms, row by row.
  std::int64_t begin_ns = 0, end_ns = 0;
  std::uint64_t events = 0, read_bytes = 0, rows = 0;
  std::string range_names;  // Of ranges that could be steps, where none has the name that was asked for.
  std::uint64_t kernels = 0, collectives = 0, steps = 0;
  std::vector<CountedLoss> losses;  // Also in the tables.
};

struct ImportedTrace {
  schema::RankTables tables;
  TraceSummary summary;
  std::string name;  // As TracePart's: what tells it from other ranks that were found when the part was read.
};

// How a part of a file is called; `part` is "" where it is the whole.
inline std::string PartName(const std::string& file, const std::string& part) {
  return part.empty() ? file : file + " (" + part + ")";
}

struct ForeignFormat {
  std::string_view name;     // On the command line and in files: "kineto".
  std::string_view program;  // The program that writes it: "torch.profiler".
  std::string_view what;     // For help: "Traces of torch.profiler: Chrome JSON, plain or gzip".
  std::string_view write;    // How to get one: "name files that ... wrote".

  // Whether a file name suggests this format. Such files in a directory are examined, and reported if they have another
  // format.
  bool (*named_like)(std::string_view name);
  // Whether the first bytes suggest it, whatever the name; null: they never do alone.
  bool (*begins_like)(std::string_view first_bytes);
  // The reason why the file does not have this format, "" if it has.
  std::string (*refuse)(const FileLook& look);
  // Finds the ranks in the file before they are read; null: one rank, as found by LookAt.
  Result<std::vector<TracePart>> (*parts)(const FileLook& look);
  // The expected number of bytes that its import processes.
  std::uint64_t (*work_bytes)(const FileLook& look);
  // One trace, or, where `parts` could not tell it from the file's ends, that of each rank in it.
  Result<std::vector<ImportedTrace>> (*read)(const std::string& path, const TracePart& part,
                                             const TraceOptions& options);
  // Whether a file name suggests a file of the program that must be exported first: `refuse` explains how. Null: there
  // are none.
  bool (*needs_export)(std::string_view name) = nullptr;
};

}  // namespace lockstep::ingest
