#pragma once
// Finds the ranks' trace files: given by name, in directories (rank_N/, TensorBoard's *.pt.trace.json.gz) or by
// patterns; and the rank of each, as far as its beginning and its name show it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "ingest/foreign.h"

namespace lockstep::ingest {

struct TraceFile {
  const ForeignFormat* format = nullptr;
  std::string path;              // To open it.
  std::string real;              // Absolute, without links.
  std::string name;              // The name to print: as given, relative to the directory given.
  std::uint64_t bytes = 0;       // On disk.
  std::uint64_t work_bytes = 0;  // That its import works on, expected.
  std::int64_t modified_ns = 0;
};

struct TraceFiles {
  std::vector<TraceFile> files;      // By name; numbers in names count as numbers.
  std::vector<std::string> skipped;  // Files that are named like traces and are none, as "FILE: why".
};

// A file's beginning and end.
FileLook LookAt(const std::string& path);

// kNotFound: an argument does not exist, or contains no trace. Files that were named one by one are taken for traces;
// files of directories are examined. `only`: of one format; null: of all formats.
Result<TraceFiles> FindTraces(const std::vector<std::string>& arguments, const ForeignFormat* only = nullptr);

// Whether FindTraces can use `path` where a run directory is expected: a file named like a trace, a directory with
// traces below it, or one with files that must be exported first.
bool HoldsTraces(const std::string& path);

// Whether the file is a trace of any format, whatever its name.
bool LooksLikeTrace(const std::string& path);

// The common directory of all, for names and caches.
std::string CommonDirectory(const std::vector<TraceFile>& files);

// "a2" before "a10".
bool NaturalLess(std::string_view a, std::string_view b);

// Rank in a file's name or its directory's: rank_3, rank3, worker3, "trace.rank-3.json",
// rank_3/trace.json, "trace_3.json"; -1 none.
struct RankInName {
  std::int32_t rank = -1;
  bool certain = false;  // A word before it shows that it is a rank; otherwise it is only the last number.
};
RankInName RankOfName(std::string_view path);

// One rank for each file: the trace's own value, else that of its name, else the next free one.
struct PlannedRank {
  std::int32_t rank = -1;
  bool told = false;           // The trace itself contains it.
  std::string from;            // "its name", "its place in the order of names"; empty if the trace contains it.
  bool guessed = false;        // Nothing tells it from the other files' ranks.
  std::int32_t loser_to = -1;  // Index of the file that has this rank already; -1 none.
  bool extra = false;          // It states no rank, and others state all ranks that there were: it is no rank's.
};
struct Asked {
  std::string name;  // "" if the file contains several ranks.
  std::int32_t told = -1, operations = -1;
};
std::vector<PlannedRank> PlanRanks(const std::vector<Asked>& files, std::int64_t world_size);

}  // namespace lockstep::ingest
