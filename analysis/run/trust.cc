// The reliability of the numbers: clock error at the events, losses, the cost of recording.

#include <algorithm>
#include <limits>
#include <map>

#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "analysis/rules/run.h"

namespace lockstep::analysis {
namespace {

// Error bounds at the arrivals; at the knots if nothing was matched.
void ClockError(const Context& context, Trust& trust) {
  const auto& tables = context.tables();
  if (tables.clock.rows() == 0) return;
  std::map<std::int32_t, merge::ClockMap> maps;
  for (const std::int32_t rank : context.ranks()) maps.emplace(rank, merge::ClockMap(tables.clock, rank));
  std::vector<std::int64_t> errors;
  const auto& members = tables.collective_ranks;
  const std::size_t stride = members.rows() / rules::kClockErrorSamples + 1;
  for (std::size_t i = 0; i < members.rows(); i += stride) {
    const auto map = maps.find(members.rank[i]);
    if (map != maps.end()) errors.push_back(map->second.ErrorAt(map->second.ToLocal(members.arrival_ns[i])));
  }
  if (errors.empty())
    for (std::size_t i = 0; i < tables.clock.rows(); ++i) errors.push_back(tables.clock.base_error_ns[i]);
  constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();
  const std::int64_t largest = *std::max_element(errors.begin(), errors.end());
  const std::int64_t median = LowerMedian(std::move(errors));
  if (largest != kUnbounded) trust.clock_error_ns_max = largest;
  if (median != kUnbounded) trust.clock_error_ns_p50 = median;
}

}  // namespace

void AssessTrust(const Context& context, Analysis& analysis) {
  const auto& tables = context.tables();
  Trust& trust = analysis.trust;
  ClockError(context, trust);
  std::int64_t app_ns = 0, agent_ns = 0;
  bool known = false;
  for (std::size_t p = 0; p < context.ranks().size(); ++p) {
    const std::size_t row = context.RankRow(p);
    trust.events += static_cast<std::int64_t>(tables.ranks.events[row]);
    trust.dropped += static_cast<std::int64_t>(tables.ranks.dropped[row]);
    if (tables.ranks.app_cpu_ns[row] >= 0 && tables.ranks.agent_cpu_ns[row] >= 0) {
      known = true;
      app_ns += tables.ranks.app_cpu_ns[row];
      agent_ns += tables.ranks.agent_cpu_ns[row];
    }
  }
  if (known) trust.agent_cpu_ns = agent_ns;
  if (app_ns >= rules::kAgentShareCpuNs)
    trust.agent_cpu_fraction = static_cast<double>(agent_ns) / static_cast<double>(app_ns);

  const auto& collectives = tables.collectives;
  trust.collectives = static_cast<std::int64_t>(collectives.rows());
  for (std::size_t c = 0; c < collectives.rows(); ++c) {
    trust.unmatched_collectives += collectives.seen[c] < collectives.expected[c];
    trust.clock_violations += collectives.violation[c] != 0;
    trust.mismatched_collectives += collectives.mismatch[c] != 0;
  }
  // Instances cut by the edges of a recording are not unmatched: the merge knows which.
  trust.unmatched_collectives = context.timeline().MetaNumber("unmatched_collectives", trust.unmatched_collectives);
}

}  // namespace lockstep::analysis
