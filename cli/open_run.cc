#include "cli/open_run.h"

#include <unistd.h>

#include <string_view>

#include "runtime/agent/recover.h"

namespace lockstep::cli {

void AddClockFlag(CLI::App& app, std::string& clock) {
  app.add_option("--clock", clock, "Clocks: auto, off (as they are), wall (accept wall-clock accuracy)")
      ->check(CLI::IsMember({"auto", "off", "wall"}))
      ->capture_default_str();
}

ClockChoice ClockChoiceOf(const std::string& clock) {
  return clock == "off" ? ClockChoice::kOff : clock == "wall" ? ClockChoice::kWall : ClockChoice::kAuto;
}

Result<Timeline> OpenRun(MergeOptions& merge, Progress& progress) {
  merge.progress = [&progress](std::string_view phase, double done) { progress.Show(phase, done); };
  merge.write = ::access(merge.run_dir.c_str(), W_OK) == 0;
  if (merge.write) FinishLeftSpools(merge.run_dir);
  Result<Timeline> timeline = OpenOrMerge(merge);
  merge.progress = {};
  return timeline;
}

}  // namespace lockstep::cli
