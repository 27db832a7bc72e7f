#pragma once
// Fills the tables of timeline.h5 that summarise a run: ranks, steps of the job, losses, meta. The input is the result
// of matching and of the ranks' passes, in any order of ranks.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "merge/readers/outcome.h"
#include "merge/readers/run_files.h"
#include "merge/steps/steps.h"
#include "merge/timeline/rank_pass.h"
#include "merge/timeline/timeline.h"
#include "trace/file/strings.h"

namespace lockstep::merge {

// One row per step number; cluster time. A step that some rank has, but not whole, is not complete. `step_ranks`: the
// ranks' rows, joined (step_rows.h).
schema::TlSteps JobStepTable(const std::vector<RankPassResult>& ranks, const std::vector<ClockMap>& clocks,
                             const JobSteps& steps, const schema::TlStepRanks& step_ranks);

// Records dropped before they reached the rank's file.
std::uint64_t DroppedRecords(const schema::RankTables& head);

// The losses that the rank's own file contains.
void AddFileLosses(const RunRank& rank, std::vector<RunLoss>& losses);

class TimelineWriter {
 public:
  explicit TimelineWriter(schema::TimelineTables& tables);

  void Ranks(const RunFiles& run, const std::vector<RankOutcome>& outcomes, const std::vector<RankPassResult>& passed);
  // Equal (rank, name, detail) become one row; sorted by rank, name, detail.
  void Losses(std::vector<RunLoss> losses);
  // rank_gpus; ranks' profiling_ns, after Ranks(). rank_gpus.cc
  void Gpus(const RunFiles& run);
  // Meta "fact.*" and gradient_buckets. run_facts.cc
  void Facts(const RunFiles& run);
  // Meta "settings_differ": options of `lockstep run` that are not the same on all ranks. run_facts.cc
  void Settings(const RunFiles& run);
  void Meta(std::string_view key, std::string_view value);
  void Meta(std::string_view key, std::int64_t value) { Meta(key, std::to_string(value)); }

 private:
  std::uint32_t Intern(std::string_view text);
  schema::TimelineTables& tables_;
  trace::StringInterner<schema::TlStrings, schema::TlStringBytes> strings_;
};

}  // namespace lockstep::merge
