#pragma once
// Which files are the ranks' traces: named, in directories (rank_N/, TensorBoard's
// *.pt.trace.json.gz) or by patterns; and which rank each is, as far as a look at
// its beginning and its name say.

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
  std::string name;              // To print it: as given, relative to the directory given.
  std::uint64_t bytes = 0;       // On disk.
  std::uint64_t work_bytes = 0;  // That its import works on, expected.
  std::int64_t modified_ns = 0;
};

struct TraceFiles {
  std::vector<TraceFile> files;      // By name; numbers in names count as numbers.
  std::vector<std::string> skipped;  // What is named like a trace and is none, as "FILE: why".
};

// A file's beginning and end.
FileLook LookAt(const std::string& path);

// kNotFound: something named does not exist, or nothing in it is a trace. Files
// named one by one are believed to be traces; files of directories are looked at.
// `only`: of one format; null: of all that the registry has.
Result<TraceFiles> FindTraces(const std::vector<std::string>& arguments, const ForeignFormat* only = nullptr);

// Whether `path` is something that FindTraces can make sense of where a run directory
// is expected: a file named like a trace, or a directory with traces below, or with files that must be exported first.
bool HoldsTraces(const std::string& path);

// Whether the file is a trace of any format, whatever it is called.
bool LooksLikeTrace(const std::string& path);

// The common directory of all, for names and caches.
std::string CommonDirectory(const std::vector<TraceFile>& files);

// "a2" before "a10".
bool NaturalLess(std::string_view a, std::string_view b);

// Rank in a file's name or its directory's: rank_3, rank3, worker3, "trace.rank-3.json",
// rank_3/trace.json, "trace_3.json"; -1 none.
struct RankInName {
  std::int32_t rank = -1;
  bool certain = false;  // A word says so; else it is only the last number.
};
RankInName RankOfName(std::string_view path);

// One rank for each file: the trace's own word, else its name's, else the next free.
struct PlannedRank {
  std::int32_t rank = -1;
  bool told = false;           // By the trace itself.
  std::string from;            // "its name", "its place in the order"; empty if told.
  std::int32_t loser_to = -1;  // Index of the file that has this rank already; -1 none.
};
struct Asked {
  std::string name;  // "" where the file's name is several ranks'.
  std::int32_t told = -1, operations = -1;
};
std::vector<PlannedRank> PlanRanks(const std::vector<Asked>& files, std::int64_t world_size);

}  // namespace lockstep::ingest
