#pragma once
// Writes a run as a file of another tool. Thread: any; one export of an output at a time.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "export/common/event.h"
#include "export/common/rank_events.h"
#include "export/common/writer.h"
#include "merge/timeline/timeline.h"

namespace lockstep::exporters {

struct ExportOptions {
  const Format* format = nullptr;
  std::string output;                              // "": the format's own name in the run directory.
  std::int64_t first_step = -1, last_step = -1;    // Inclusive; -1 no bound.
  std::optional<std::vector<std::int32_t>> ranks;  // If set, these ranks only.
  std::int64_t least_ns = 0;                       // Details shorter than that are left out.
  // The output's largest size, as far as leaving out short details achieves it; 0: any.
  std::uint64_t budget_bytes = 0;
  std::size_t flows = 200;  // The number of arrows, for the longest waits.
  WriterOptions writer;
  std::vector<Finding> findings;
  unsigned jobs = 0;
  std::function<void(std::string_view phase, double done)> progress;
};

struct ExportResult {
  std::string output;
  std::uint64_t bytes = 0;  // For a directory: of all its files.
  Counts written{}, left_out{};
  std::int64_t least_ns = 0;  // As requested, or as the budget required.
  std::size_t ranks = 0;
  std::uint64_t samples = 0;          // Of stacks.
  std::vector<std::string> troubles;  // What could not be read, one line each.
  bool over_budget = false;
  std::int64_t begin_ns = 0, end_ns = 0;  // Of what was written, in the output's time.
  std::uint64_t events() const;
};

// kUsage: a rank or step that the run does not have. kUnsupported: this build cannot write the format. Ranks that
// cannot be read are troubles, not errors, unless none can be read.
Result<ExportResult> Export(const merge::Timeline& timeline, const ExportOptions& options);

// The time of a step on all ranks together, cluster time. kUsage if no rank has it.
Result<Interval> StepWindow(const merge::Timeline& timeline, std::int64_t step, unsigned jobs);

}  // namespace lockstep::exporters
