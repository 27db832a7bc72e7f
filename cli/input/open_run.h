#pragma once
// A run directory as most commands want it: merged.

#include <CLI/CLI.hpp>
#include <string>
#include <type_traits>

#include "cli/output/progress.h"
#include "core/result.h"
#include "merge/merge.h"

namespace lockstep::cli {

// --clock, the same for all commands, and what it chooses.
void AddClockFlag(CLI::App& app, std::string& clock);
merge::ClockChoice ClockChoiceOf(const std::string& clock);

// The timeline of merge.run_dir, merged now if it is not there or older than the ranks' files; what killed ranks left
// is finished first. Commands that find the same to do wait for one another (merge/work_lock.h). Sets merge.write: a
// directory that cannot be written to is read all the same. `progress` must outlive the call only.
Result<merge::Timeline> OpenRun(merge::MergeOptions& merge, Progress& progress);

// Says that ranks' files changed while they were read and are read again, or, the last time, that the result may be
// mixed.
void SayChanged(Progress& progress, const std::string& run_dir, bool last);

// `work` on that timeline, a Result of something: from the beginning if ranks' files came, went or changed meanwhile,
// so that nothing is said of a mixture. `work` leaves nothing behind that a second time would not replace.
template <typename Work>
auto WithRun(merge::MergeOptions& merge, Progress& progress, Work&& work)
    -> std::invoke_result_t<Work, const merge::Timeline&> {
  constexpr int kAttempts = 3;
  for (int attempt = 1;; ++attempt) {
    const std::string seen = merge::SeenFiles(merge.run_dir);
    const Result<merge::Timeline> timeline = OpenRun(merge, progress);
    // What left spools become on the way is no change; what is not there any more may be under another name.
    if (!timeline.ok() && (attempt == kAttempts || merge::SeenFiles(merge.run_dir) == seen)) return timeline.error();
    if (!timeline.ok()) continue;
    auto result = work(timeline.value());
    if (!merge::Changed(timeline.value())) return result;
    SayChanged(progress, merge.run_dir, attempt == kAttempts);
    if (attempt == kAttempts) return result;
  }
}

}  // namespace lockstep::cli
