#pragma once
// Where every thread of this slot's program stands while nothing moves: taken once, kept in the spool for whoever
// answers who holds the job up, and left as text in the run directory.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/ring_layout.h"
#include "runtime/agent/stacks/stack_reader.h"

namespace lockstep::agent {

class HangStacks {
 public:
  struct Setup {
    std::string run_dir;
    std::int32_t slot = 0;
    StackReader::Setup reader;
    std::function<void(const std::string&)> keep;  // Lines for the spool's meta.
  };
  explicit HangStacks(Setup setup) : setup_(std::move(setup)) {}

  // Of each process that records. Once, until Forget.
  void Take(const SegmentView& segment, std::int64_t now_ns);
  // Keeps those whose names are known by now. Never blocks.
  void Poll();
  bool taken() const { return taken_ns_ != 0; }
  // Whether stacks that were taken a moment ago, here or by another agent, may not be kept yet.
  bool fresh(std::int64_t now_ns) const;
  // What was taken tells nothing any more.
  void Forget();

 private:
  void Keep(std::int64_t process, const std::string& value);

  Setup setup_;
  std::optional<StackReader> reader_;  // From the first time on.
  std::int64_t taken_ns_ = 0;
  std::map<std::int64_t, std::string> texts_;  // By process: what the file in the run directory holds.
  std::vector<std::int64_t> kept_;             // Processes of which something is in the spool.
};

// Where the text of a slot's stacks lies, below the run directory.
std::string StacksFile(std::int32_t slot);
// One line of JSON: {"at_ns": ..., "file": "stacks/rank-00001.txt", "threads": [{"thread": ..., "name": ..., "main":
// true, "missing": "", "waits_for": "a lock", "held_by": 4711, "frames":
// [["collate", "train.py", 88, "p"], ...]}, ...]}, frames innermost first, their last member "p" for Python's, "l" for
// a library's, both or neither. Read by ingest/recorded/stacks.cc.
std::string StacksJson(const StackSample& sample, const std::string& file);
// For people.
std::string StacksText(const StackSample& sample);

}  // namespace lockstep::agent
