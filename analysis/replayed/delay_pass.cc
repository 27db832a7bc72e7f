// Whose work makes others wait, at once and through others; from the recorded schedule.

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/passes.h"
#include "analysis/replay/questions/delays.h"
#include "analysis/replayed/enclosing_range.h"
#include "analysis/replayed/replayed_run.h"
#include "analysis/rules/network.h"

namespace lockstep::analysis {

void AttributeDelays(const Context& context, Analysis& analysis) {
  const ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr || !replayed->Reproduces() || replayed->run().ranks.size() < 2) return;
  const replay::Job& job = replayed->job();
  const replay::Delays delays = FindDelays(replayed->run(), job, replayed->schedule());
  const auto steps = static_cast<double>(std::max<std::size_t>(1, replayed->run().steps.size()));

  std::map<std::uint32_t, double> of_rank;
  for (const replay::DelayCost& cost : delays.costs)
    of_rank[job.operations[cost.operation].rank] += cost.short_term_ns + cost.long_term_ns;
  const EnclosingRanges names(context, *replayed, of_rank);

  std::map<std::pair<std::int32_t, std::string>, std::pair<double, double>> rows;
  for (const replay::DelayCost& cost : delays.costs) {
    auto& row = rows[{replayed->run().ranks[job.operations[cost.operation].rank], names.Of(cost.operation)}];
    row.first += cost.short_term_ns;
    row.second += cost.long_term_ns;
  }
  for (const auto& [key, costs] : rows) {
    const DelayRow row{key.first, key.second, std::llround(costs.first / steps), std::llround(costs.second / steps)};
    if (row.short_term_ns + row.long_term_ns > 0) analysis.delays.push_back(row);
  }
  std::stable_sort(analysis.delays.begin(), analysis.delays.end(), [](const DelayRow& a, const DelayRow& b) {
    return a.short_term_ns + a.long_term_ns > b.short_term_ns + b.long_term_ns;
  });
  if (analysis.delays.size() > rules::kReplayedRows) analysis.delays.resize(rules::kReplayedRows);
}

}  // namespace lockstep::analysis
