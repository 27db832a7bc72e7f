#pragma once
// A run directory as most commands want it: merged.

#include <string>
#include <type_traits>
#include <vector>

#include "cli/input/imported.h"
#include "cli/output/progress.h"
#include "core/result.h"
#include "merge/merge.h"

namespace lockstep::cli {

// What every command takes that shows one run: which, and how it is read and merged.
struct RunFlags : ReadFlags {
  std::vector<std::string> runs;  // A run directory, or traces.
};

// The run directory (traces are imported) and how many threads read it.
Result<merge::MergeOptions> MergeOptionsOf(const std::vector<std::string>& runs, const ReadFlags& flags);

// The timeline of merge.run_dir, merged now if it is not there or older than the ranks' files; what killed ranks left
// is finished first. Commands that find the same to do wait for one another (merge/work_lock.h). Sets merge.write: a
// directory that cannot be written to is read all the same. `progress` must outlive the call only.
Result<merge::Timeline> OpenRun(merge::MergeOptions& merge, Progress& progress);

// Says that ranks' files changed while they were read and are read again, or, the last time, that the result may be
// mixed.
void SayChanged(Progress& progress, const std::string& run_dir, bool last);

// `work(timeline, progress)` on that timeline, a Result of something: from the beginning if ranks' files came, went or
// changed meanwhile, so that nothing is said of a mixture. `work` leaves nothing behind that a second time would not
// replace.
template <typename Work>
auto WithRun(merge::MergeOptions& merge, bool quiet, Work&& work)
    -> std::invoke_result_t<Work, const merge::Timeline&, Progress&> {
  constexpr int kAttempts = 3;
  Progress progress(quiet);
  for (int attempt = 1;; ++attempt) {
    const std::string seen = merge::SeenFiles(merge.run_dir);
    const Result<merge::Timeline> timeline = OpenRun(merge, progress);
    // What left spools become on the way is no change; what is not there any more may be under another name.
    if (!timeline.ok() && (attempt == kAttempts || merge::SeenFiles(merge.run_dir) == seen)) return timeline.error();
    if (!timeline.ok()) continue;
    auto result = work(timeline.value(), progress);
    if (!merge::Changed(timeline.value())) return result;
    SayChanged(progress, merge.run_dir, attempt == kAttempts);
    if (attempt == kAttempts) return result;
  }
}

}  // namespace lockstep::cli
