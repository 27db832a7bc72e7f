#pragma once
// Fewer and larger units of sharded parameters (FSDP and similar): what is gathered and reduced at once.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "analysis/replay/graph/cost_model.h"
#include "analysis/replay/questions/what_if.h"

namespace lockstep::replay {

// What the collectives of units cost by their size: as the unchanged replay has them, each size of each kind, and what
// the run saw beside its steps.
struct UnitCosts {
  CostModel gather, reduction;
};
std::shared_ptr<const UnitCosts> CostsOfUnits(const RecordedRun& run, const Job& job);

// Each `together` units that follow each other made one: the first all-gather of them gathers all, the last reduction
// reduces all, each taking what the costs say of their sum relative to that of the parts. `dearer`: a factor for what
// the costs may be off by, as a power of CostModel::Estimate::factor: 0 as estimated, 1 as dear as they may be. Calls
// and what the program itself does for each unit stay as they are. Nothing if `together` is 0, a cost is not known, or
// ranks or steps gather or reduce different units. The run must outlive the question.
std::optional<Question> WithLargerUnits(const RecordedRun& run, std::shared_ptr<const UnitCosts> costs,
                                        std::size_t together, int dearer = 0);

struct LargerUnits {
  std::size_t together = 0, units = 0;  // Units made one; units of the run.
  std::int64_t gain_ns = 0;             // Per step, median.
  // 95 %, from the steps and from the costs; nothing for few steps.
  std::optional<std::pair<std::int64_t, std::int64_t>> gain_interval_ns;
  // What the collectives of the units of a step take, one after the other: now, and then.
  std::int64_t transfers_ns = 0, transfers_then_ns = 0;
  bool extrapolated = false;  // A size that it makes lies outside of what was measured.
  std::string limit;          // As Answer::limit.
};
// The least number of units to make one that gains as much as any, to `worth_ns`: the parameters of a unit are in
// memory together. Two units remain at least, because one would be no sharding. Nothing if none gains more than
// `worth_ns`, or it is not known what they cost.
std::optional<LargerUnits> FindLargerUnits(const WhatIf& what_if, const Job& job, std::int64_t worth_ns);

// Two units in place of all, whose collectives take as long as those of one unit do now: the most that their transfers
// can gain. `transfers_then_ns` is what they take then. Nothing unless all units have one size, of which alone nothing
// is known of other sizes, and more than half of the time of their collectives is not that of their bytes, did these
// move at `bytes_per_ns`.
std::optional<LargerUnits> FewerUnitsAtMost(const WhatIf& what_if, const Job& job, double bytes_per_ns);

}  // namespace lockstep::replay
