#pragma once
// Trace files where a command wants a run directory.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "core/result.h"
#include "ingest/import.h"

namespace lockstep::cli {

// Progress of an import on stderr, with the time it will still take. One call at a time.
class ImportMeter {
 public:
  explicit ImportMeter(bool quiet);
  ~ImportMeter();
  ImportMeter(const ImportMeter&) = delete;
  ImportMeter& operator=(const ImportMeter&) = delete;
  void Show(const ingest::ImportProgress& progress);
  double seconds() const;

 private:
  bool quiet_, terminal_, shown_ = false;
  long long begin_ns_, last_ns_;
};

// The positional argument that ResolveRunOrTraces takes.
void AddRunsArgument(CLI::App& app, std::vector<std::string>& runs);

// The run directory that `given` stands for: as ResolveRun tells for one that is a run;
// for trace files and directories of such an import in a cache beside them (DIR/.lockstep/,
// or below the user's cache directory), made now if it is not there or older.
Result<std::string> ResolveRunOrTraces(const std::vector<std::string>& given, unsigned jobs, bool quiet);
// Of one word, "" for the latest run.
Result<std::string> ResolveOne(const std::string& given, unsigned jobs, bool quiet);

}  // namespace lockstep::cli
