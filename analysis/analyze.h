#pragma once
// Timeline -> Analysis. Deterministic: same tables, same result, whatever the
// number of threads, the order of files or the time of day.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "analysis/core/model.h"
#include "analysis/rules/run.h"
#include "core/result.h"
#include "core/schema.h"
#include "merge/timeline/timeline.h"

namespace lockstep::analysis {

struct AnalyzeOptions {
  unsigned jobs = 0;  // Threads, 0: all allowed cores. Never changes the result.
  // Of Analysis::steps, which says `truncated` above that (listed_cells.h): a file that is read as a whole.
  std::size_t max_steps = rules::kStepsListed, max_step_cells = rules::kStepCellsListed,
              max_named_cells = rules::kNamedStepCellsListed;
  std::uint64_t seed = rules::kSeed;  // Of bootstrap and permutations.
  // What `lockstep hang` says of the run, line by line: asked for only if ranks were ended or failed. Empty: not known.
  std::function<std::vector<std::string>()> hang;
  bool replay = true;  // Answer what takes a replay of the run.
  // Called before each pass with its number, from 1, and that of all. Passes take very different times.
  std::function<void(std::size_t pass, std::size_t passes)> progress;
  // Tables of a rank, asked for only when a price needs them. Empty: Timeline::ReadRank.
  std::function<Result<schema::RankTables>(std::int32_t rank)> read_rank;
};

// kMalformed if the tables contradict each other (row numbers out of range).
// Lost or missing data is no error: it is in Analysis::losses.
Result<Analysis> Analyze(const merge::Timeline& timeline, const AnalyzeOptions& options);
// Data was lost or the input is suspicious: exit 3. Cheap: nothing is searched for.
bool IncompleteInput(const merge::Timeline& timeline);

}  // namespace lockstep::analysis
