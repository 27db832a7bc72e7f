#pragma once
// What one file of a run holds, for `lockstep info`: a rank file, a timeline, a spool, a JSON file.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"

namespace lockstep::cli {

struct TableFacts {
  std::string name;
  std::uint64_t rows = 0;
  std::optional<std::uint64_t> digest;
  std::vector<std::pair<std::string, std::uint64_t>> columns;  // With their digests.
};

// One rank file, timeline or spool.
struct FileFacts {
  std::string path, format, version;
  bool complete = false;
  std::vector<TableFacts> tables;
  std::vector<std::pair<std::string, std::string>> meta;
  struct LossFacts {
    std::string name, detail;
    std::uint64_t count;
  };
  std::vector<LossFacts> losses;
  std::vector<std::string> damaged, notes;
  bool recovered = false;                    // Made from the files that an agent left.
  std::vector<std::string> missing_columns;  // Columns newer than the file; they read as unknown.
  std::optional<std::uint64_t> digest;       // The digest of the whole content.
};

// kMalformed, kNotFound: there is nothing of Lockstep's in it. `digest`: with checksums, for which all of it is read.
Result<FileFacts> FactsOf(const std::string& path, bool digest);

// It is not complete, damaged, or lacks something.
bool Suspicious(const FileFacts& facts);

// A trace of another tool, which is shown as the rank file that it becomes.
bool IsTrace(const std::string& path);

}  // namespace lockstep::cli
