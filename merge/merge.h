#pragma once
// Many rank files -> one timeline.h5: read, align, match, steps, breakdown.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "merge/team.h"
#include "merge/timeline/timeline.h"

namespace lockstep::merge {

enum class ClockChoice : std::uint8_t {
  kAuto,  // Bursts, else corridors; ranks with neither are refused.
  kOff,   // Rank clocks are used as they are (for tests and comparisons).
  kWall,  // Wall-clock accuracy is accepted where nothing better exists.
};

struct MergeOptions {
  std::string run_dir;
  unsigned jobs = 0;  // Threads, 0: all allowed cores.
  ClockChoice clock = ClockChoice::kAuto;
  std::string classes = "lockstep";              // Or "hta".
  std::int64_t first_step = -1, last_step = -1;  // Analysis window in steps, inclusive; -1 all.
  std::string window = "lockstep";               // Or "hta": totals over the window of Holistic Trace Analysis.
  bool write = true;                             // Write timeline.h5 beside making it.
  MergeTeam* team = nullptr;                     // Other processes that merge the same run; null: alone.
  // Receives the phase and the progress of the whole, 0 to 1; from any thread, one call at a time. May be empty.
  std::function<void(std::string_view phase, double done)> progress;
};

// The merged run. Imperfect input is not an error: it is counted in the losses
// table. kNotFound: no rank file at all; kUnsupported: clocks that cannot be related.
Result<Timeline> MergeRun(const MergeOptions& options);

// Opens RUN/timeline.h5 if it is newer than every rank file and was made of them with the
// same options.
std::optional<Timeline> OpenFresh(const MergeOptions& options);
// The same, else merges.
Result<Timeline> OpenOrMerge(const MergeOptions& options);

// Names, sizes and times of the files that a merge reads, as one text, by which a command notices changes until its
// end. Of spools only the names: they grow as long as a rank runs, and what was read of one stays valid.
std::string SeenFiles(const std::string& run_dir);
// Whether rank files of the run were added, removed or changed since the timeline was opened: what was read of them
// after that may not belong to it.
bool Changed(const Timeline& timeline);

}  // namespace lockstep::merge
