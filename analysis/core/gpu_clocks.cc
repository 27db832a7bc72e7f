#include "analysis/core/gpu_clocks.h"

#include <algorithm>

#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

double StepNs(const schema::TimelineTables& tables) {
  double sum_ns = 0, steps = 0, longest_ns = 0;
  for (std::size_t i = 0; i < tables.steps.rows(); ++i)
    if (tables.steps.warmup[i] == 0 && tables.steps.step_ns[i] > 0)
      sum_ns += static_cast<double>(tables.steps.step_ns[i]), ++steps;
  if (steps > 0) return sum_ns / steps;
  for (std::size_t i = 0; i < tables.rank_totals.rows(); ++i)
    longest_ns =
        std::max(longest_ns, static_cast<double>(tables.rank_totals.end_ns[i] - tables.rank_totals.begin_ns[i]));
  return longest_ns;
}

}  // namespace

GpuClocks NotableGpuClocks(const merge::Timeline& timeline) {
  const auto notable = [&](std::string_view key) -> std::int64_t {
    const std::int64_t ns = timeline.MetaNumber(key, 0);
    return ns > 0 && static_cast<double>(ns) >= rules::kWorthShare * StepNs(timeline.tables) ? ns : 0;
  };
  return {notable("gpu_clock_moved_ns"), notable("gpu_clock_contradicts_ns"), notable("gpu_overlap_ns")};
}

}  // namespace lockstep::analysis
