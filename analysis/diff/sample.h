#pragma once
// The data of a run that a comparison needs: means over its steps with their intervals, and facts that may explain a
// change of them. It is small: as JSON it is a baseline that can be kept with the job's sources.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/analyze.h"
#include "analysis/diff/names.h"
#include "analysis/diff/rank_phases.h"
#include "analysis/diff/spread.h"

namespace lockstep::diff {

struct MeasureSample {
  std::string name;  // Of measures.h.
  Spread spread;     // count 0: not known in this run.
};

struct RankSample {
  std::int32_t rank = -1;
  std::string node;
  Spread work_ns;                              // Compute of a step, and what it is blocked in; rank clock.
  std::optional<std::int64_t> sm_clock_mhz;    // Of its GPU, lower median.
  std::optional<analysis::CauseId> straggler;  // Its cause, if the analysis names the rank a straggler.
  double blocked_ns = 0;                       // Of work_ns, mean.
};

// Collectives of one kind, size of group and number of bytes.
struct CollectiveSample {
  std::string op;
  std::int64_t members = 0;
  std::uint64_t bytes = 0;
  double per_step = 0;
  Spread transfer_ns, wait_ns;  // Sums over a step of the instances' medians over ranks; count 0: unknown.
};

struct PhaseSample {
  std::string name;  // "forward"
  Spread spread;     // Mean over ranks.
};

// A place at which training threads are blocked in recorded calls.
struct BlockedSample {
  std::string what;  // "sleep (train.py:32)"
  Spread spread;     // Per step, mean over the ranks that were read: at most eight, those that are blocked most.
};

struct RunSample {
  std::string label;   // Where it is.
  std::string run_id;  // "": not known, as of baselines.
  std::string job, lockstep_version;
  std::int64_t ranks = 0, nodes = 0, gpu_ranks = 0;  // ranks: the world's size; nodes 0: not known.
  std::vector<std::string> gpu_names;
  std::string steps_kind;  // "marks", "hooks" .., "" without steps.
  std::string classes;
  std::int64_t steps = 0;               // The steps that count: complete on every rank, no warm-up.
  std::int64_t shared_cores = 0;        // More ranks than cores; 0: each has its own.
  std::vector<std::string> incomplete;  // Why the run is not complete, in words.
  std::vector<MeasureSample> measures;
  std::int64_t long_steps = 0;  // That make up the longer of two groups (statistics.h); 0: there are none.
  Spread other_steps_ns;        // Length of the others.
  std::vector<RankSample> rank_samples;
  std::vector<CollectiveSample> collectives;
  std::vector<PhaseSample> phases;
  std::vector<BlockedSample> blocked;
  std::optional<double> bucket_cap_mb;
  NamesSample names;
  std::vector<RankPhase> rank_phases;  // By rank and phase.

  const MeasureSample* Find(std::string_view name) const;
  bool BlockedKnown() const;  // false: compute includes what ranks are blocked in.
};

// Analyses the run (without replay) and reads the ranks' tables.
Result<RunSample> SampleOf(const merge::Timeline& timeline, const analysis::AnalyzeOptions& options, std::string label);

// "lockstep.baseline/2". Ends with a newline.
std::string BaselineJson(const RunSample& sample);
// kMalformed with the reason.
Result<RunSample> ParseBaseline(const std::string& text, const std::string& path);

}  // namespace lockstep::diff
