// The readings of the GPUs' own sensors, and the time that profiling took.

#include <algorithm>
#include <set>

#include "analysis/core/device.h"
#include "analysis/passes.h"

namespace lockstep::analysis {

void TabulateGpus(const Context& context, Analysis& analysis) {
  const schema::TlRankGpus& t = context.tables().rank_gpus;
  const auto known = [](std::uint32_t value) {
    return value == schema::kNone ? std::nullopt : std::optional<std::int64_t>(value);
  };
  std::set<std::string> names;
  for (std::size_t i = 0; i < t.rows(); ++i) {
    const std::size_t position = context.Position(t.rank[i]);
    if (position == kNowhere) continue;
    GpuRow row;
    row.rank = t.rank[i];
    row.device = t.device[i] == kUnknownDevice ? -1 : t.device[i];
    row.name = context.timeline().Text(t.name[i]);
    if (!row.name.empty() && context.tables().ranks.gpu[context.RankRow(position)] != 0) names.insert(row.name);
    row.samples = static_cast<std::int64_t>(t.samples[i]);
    row.throttled = static_cast<std::int64_t>(t.throttled[i]);
    row.sm_clock_mhz = known(t.sm_clock_mhz[i]);
    row.sm_clock_low_mhz = known(t.sm_clock_low_mhz[i]);
    row.memory_clock_mhz = known(t.memory_clock_mhz[i]);
    row.power_mw = known(t.power_mw[i]);
    row.temperature_c = known(t.temperature_c[i]);
    row.throttle_reasons = t.throttle_reasons[i];
    if (row.samples > 0) analysis.gpus.push_back(std::move(row));
  }
  analysis.run.gpus.assign(names.begin(), names.end());
  analysis.run.cuda_driver_version = context.timeline().Meta("cuda_driver_version");
  analysis.run.cupti_version = context.timeline().Meta("cupti_version");
  analysis.run.nccl_plugin = context.timeline().Meta("fact.nccl_plugin");

  // Of the ranks' time, how much the profiling library took for itself.
  const auto& totals = context.tables().rank_totals;
  std::int64_t taken = 0, span = 0;
  for (std::size_t i = 0; i < totals.rows(); ++i) {
    const std::size_t position = context.Position(totals.rank[i]);
    if (position == kNowhere || context.tables().ranks.gpu[context.RankRow(position)] == 0) continue;
    taken += context.tables().ranks.profiling_ns[context.RankRow(position)];
    span += SpanOf(totals, i);
  }
  if (taken > 0 && span > 0) analysis.trust.overhead_fraction = static_cast<double>(taken) / static_cast<double>(span);
}

}  // namespace lockstep::analysis
