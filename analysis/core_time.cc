#include "analysis/core_time.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "analysis/core/statistics.h"
#include "core/rules/common.h"

namespace lockstep::analysis {

double CoreTime::common_share(std::size_t job_ranks) const {
  if (ranks.empty() || !HalfOf(ranks.size(), job_ranks)) return 0;
  std::vector<double> shares;
  for (const OfRank& rank : ranks)
    shares.push_back(static_cast<double>(rank.without_core_ns) / static_cast<double>(rank.span_ns));
  return LowerMedian(std::move(shares));
}

CoreTime WithoutCore(const Context& context) {
  CoreTime time;
  const auto& usable = context.usable_steps();
  time.steps = static_cast<std::int64_t>(usable.size());
  const auto& cells = context.tables().step_ranks;
  const auto& totals = context.tables().rank_totals;
  const auto add = [](const auto& t, std::size_t i, std::int64_t span_ns, bool gpu, CoreTime::OfRank& sum) {
    const std::int64_t calls =
        gpu ? 0 : t.exposed_wait_ns[i] + t.exposed_transfer_ns[i] + t.exposed_unsplit_ns[i] + t.mpi_other_ns[i];
    sum.without_core_ns += t.offcpu_ns[i];
    sum.outside_calls_ns += std::max<std::int64_t>(0, t.offcpu_ns[i] - calls);
    sum.span_ns += span_ns;
    sum.cpu_ns = t.cpu_ns[i] < 0 ? -1 : std::max<std::int64_t>(0, sum.cpu_ns) + t.cpu_ns[i];
  };
  if (!usable.empty()) {
    std::vector<CoreTime::OfRank> sums;
    for (const std::int32_t rank : context.ranks()) sums.push_back({.rank = rank});
    // Step by step, as the cells are in memory.
    for (const std::size_t step : usable)
      for (std::size_t p = 0; p < sums.size(); ++p)
        if (const std::size_t i = context.Cell(step, p); i != kNowhere && cells.offcpu_ns[i] >= 0)
          add(cells, i, cells.end_ns[i] - cells.begin_ns[i], context.tables().ranks.gpu[context.RankRow(p)] != 0,
              sums[p]);
    std::copy_if(sums.begin(), sums.end(), std::back_inserter(time.ranks),
                 [](const CoreTime::OfRank& sum) { return sum.span_ns > 0; });
  }
  for (std::size_t i = 0; i < totals.rows() && usable.empty(); ++i) {
    if (totals.offcpu_ns[i] < 0) continue;
    CoreTime::OfRank sum{.rank = totals.rank[i]};
    const std::size_t p = context.Position(totals.rank[i]);
    add(totals, i, SpanOf(totals, i), p != kNowhere && context.tables().ranks.gpu[context.RankRow(p)] != 0, sum);
    if (sum.span_ns > 0) time.ranks.push_back(sum);
  }
  return time;
}

}  // namespace lockstep::analysis
