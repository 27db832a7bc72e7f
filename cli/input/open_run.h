#pragma once
// Opens a run directory and merges it if necessary, as most commands need.

#include <string>
#include <type_traits>
#include <vector>

#include "analysis/analyze.h"
#include "cli/input/imported.h"
#include "cli/output/progress.h"
#include "core/result.h"
#include "merge/merge.h"

namespace lockstep::cli {

// Flags of every command that shows one run: which run, and how it is read and merged.
struct RunFlags : ReadFlags {
  std::vector<std::string> runs;  // A run directory, or traces.
};

// The run directory (traces are imported) and how many threads read it.
Result<merge::MergeOptions> MergeOptionsOf(const std::vector<std::string>& runs, const ReadFlags& flags);

// The timeline of merge.run_dir, merged now if it does not exist or is older than the ranks' files; files of killed
// ranks are finished first. Commands with the same work to do wait for one another (merge/work_lock.h). Sets
// merge.write: a directory that cannot be written to is read all the same. `progress` must outlive the call only.
Result<merge::Timeline> OpenRun(merge::MergeOptions& merge, Progress& progress);

// `progress`, which must outlive `options`, shows at which pass the analysis is.
void ShowPasses(Progress& progress, analysis::AnalyzeOptions& options);

// Reports that ranks' files changed while they were read and are read again or, the last time, that the result may be
// mixed.
void SayChanged(Progress& progress, const std::string& run_dir, bool last);

// Calls `work(timeline, progress)`, which returns a Result, on that timeline; repeats it if ranks' files were added,
// removed or changed meanwhile, so that the result is never a mixture. Everything that `work` leaves behind must be
// replaced by a second call.
template <typename Work>
auto WithRun(merge::MergeOptions& merge, bool quiet, Work&& work)
    -> std::invoke_result_t<Work, const merge::Timeline&, Progress&> {
  constexpr int kAttempts = 3;
  Progress progress(quiet);
  for (int attempt = 1;; ++attempt) {
    const std::string seen = merge::SeenFiles(merge.run_dir);
    const Result<merge::Timeline> timeline = OpenRun(merge, progress);
    // Finishing spools does not count as a change; a file that disappeared may have got another name.
    if (!timeline.ok() && (attempt == kAttempts || merge::SeenFiles(merge.run_dir) == seen)) return timeline.error();
    if (!timeline.ok()) continue;
    auto result = work(timeline.value(), progress);
    if (!merge::Changed(timeline.value())) return result;
    SayChanged(progress, merge.run_dir, attempt == kAttempts);
    if (attempt == kAttempts) return result;
  }
}

}  // namespace lockstep::cli
