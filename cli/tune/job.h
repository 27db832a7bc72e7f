#pragma once
// The job that `lockstep tune` is about: run with settings in force, recorded, and measured.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "analysis/context.h"
#include "analysis/tune/facts.h"
#include "analysis/tune/losses.h"
#include "analysis/tune/session.h"
#include "analysis/tune/settings.h"
#include "core/result.h"

namespace lockstep::cli {

struct JobOptions {
  std::vector<std::string> command;
  std::string directory;   // Everything is written there.
  std::int64_t steps = 0;  // After which each run is ended; 0: it ends by itself.
  std::string check;       // A shell command that compares two runs' output; "": none.
  double loss_tolerance = 1e-5;
  unsigned jobs = 0;
};

// What one run gave.
struct Measured {
  tune::RunResult result;
  std::int64_t steps = 0;       // From which the length was taken.
  std::int64_t peak_bytes = 0;  // Of its largest process on this host.
  bool interrupted = false;
};

// kUsage: why this command cannot be tuned, as far as its words tell.
Status CheckCommand(const std::vector<std::string>& command);

class TunedJob {
 public:
  explicit TunedJob(JobOptions options) : options_(std::move(options)) {}

  // Two runs of the job as it is; the first one warms caches, and nothing but its losses is used. The recording of the
  // second stays (directory/as-it-is). An error says what is wrong with the job, and what to do.
  Result<tune::Facts> MeasureAsItIs(double budget_s);
  // Calls `work` with the analysis of that recording.
  Status WithRecording(const std::function<Status(const analysis::Context&)>& work) const;
  // With these in force. What takes several times as long as the job as it is, is ended.
  Result<Measured> Run(const std::vector<const tune::Candidate*>& in_force);

  const Measured& as_it_is() const { return as_it_is_; }
  const tune::LossGuard& guard() const { return guard_; }
  double run_s() const { return run_s_; }  // What a run takes.

 private:
  struct Raw;
  Result<Raw> Execute(const std::string& name, const std::vector<const tune::Candidate*>& in_force, double timeout_s);
  std::vector<std::string> Words(const std::string& run_dir, const std::vector<const tune::Candidate*>& in_force) const;
  std::vector<std::string> Environment(const std::vector<const tune::Candidate*>& in_force) const;
  std::string WhyNotApplied(const std::vector<const tune::Candidate*>& in_force, const tune::Seen& seen) const;
  bool PassesCheck(const std::string& as_it_is, const std::string& output) const;
  std::string RecordingDir() const { return options_.directory + "/as-it-is"; }

  JobOptions options_;
  tune::LossGuard guard_{options_.loss_tolerance};
  Measured as_it_is_;
  tune::Seen seen_as_it_is_;
  double run_s_ = 0;
  std::int64_t runs_ = 0;
};

}  // namespace lockstep::cli
