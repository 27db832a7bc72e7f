#include "cli/input/open_run.h"

#include <unistd.h>

#include <filesystem>
#include <string_view>
#include <utility>

#include "merge/work_lock.h"
#include "runtime/agent/recover/recover.h"
#include "trace/file/part_file.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

// Spools without a rank file: there may be something to finish.
bool AnySpoolLeft(const std::string& run_dir) {
  std::error_code error;
  const fs::path ranks = fs::path(run_dir) / "ranks";
  for (fs::directory_iterator at(ranks, error), end; !error && at != end; at.increment(error)) {
    std::error_code absent;
    if (at->path().extension() == ".spool" && !fs::exists(fs::path(at->path()).replace_extension(".h5"), absent))
      return true;
  }
  return false;
}

}  // namespace

Result<merge::MergeOptions> MergeOptionsOf(const std::vector<std::string>& runs, const ReadFlags& flags) {
  merge::MergeOptions merge;
  LS_TRY(merge.run_dir, ResolveRunOrTraces(runs, flags));
  merge.jobs = flags.jobs;
  return merge;
}

Result<merge::Timeline> OpenRun(merge::MergeOptions& merge, Progress& progress) {
  merge.write = ::access(merge.run_dir.c_str(), W_OK) == 0;
  // Said to be of the merge: what the command does after it takes longer, and the time left does not count that.
  const auto show = [&progress](std::string_view phase, double done) {
    progress.Show("merge, " + std::string(phase), done);
  };
  merge.progress = show;
  Result<merge::Timeline> timeline = [&]() -> Result<merge::Timeline> {
    if (!merge.write) return merge::OpenOrMerge(merge);
    trace::RemoveLeftovers(merge.run_dir);
    if (!AnySpoolLeft(merge.run_dir))
      if (std::optional<merge::Timeline> fresh = merge::OpenFresh(merge)) return std::move(*fresh);
    merge::WorkLock lock(merge::WorkLockOf(merge.run_dir), merge.run_dir,
                         [&](const std::string& text) { progress.Say(text); });
    merge.progress = [&](std::string_view phase, double done) {
      lock.Touch();
      show(phase, done);
    };
    if (!lock.others_at_it()) agent::FinishLeftSpools(merge.run_dir);
    return merge::OpenOrMerge(merge);
  }();
  merge.progress = {};
  return timeline;
}

void ShowPasses(Progress& progress, analysis::AnalyzeOptions& options) {
  options.progress = [&progress](std::size_t pass, std::size_t passes) { progress.ShowPart("analysis", pass, passes); };
}

void SayChanged(Progress& progress, const std::string& run_dir, bool last) {
  progress.Say(last ? "files of " + run_dir + " are still changing: the result may mix old and new files"
                    : "files of " + run_dir + " changed while they were read: reading them again");
}

}  // namespace lockstep::cli
