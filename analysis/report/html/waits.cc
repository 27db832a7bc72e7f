#include "analysis/report/html/waits.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "analysis/communication/awaited.h"
#include "merge/timeline/charges.h"

namespace lockstep::report {

PageJson WaitsOf(const analysis::Context& context, const WaitLimits& limits) {
  const std::size_t n = context.ranks().size();
  const merge::Charges charges(context.timeline(), context.options().jobs);
  const std::size_t collectives = context.tables().collectives.rows();
  const analysis::AwaitedTime time = analysis::AwaitedTimeOf(context, charges);
  std::vector<double> awaited(n);
  for (std::size_t p = 0; p < n; ++p) awaited[p] = time.Of(p);
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t p) { return awaited[p] == 0; });
  if (order.empty()) return nullptr;
  const std::size_t all = order.size();
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return awaited[a] > awaited[b]; });
  if (order.size() > limits.rows) order.resize(limits.rows);
  std::sort(order.begin(), order.end());
  std::vector<std::size_t> row_of(n, analysis::kNowhere);
  for (std::size_t row = 0; row < order.size(); ++row) row_of[order[row]] = row;

  // By rank first: a cell shows the longest of the ranks that share it, each rank's sum.
  std::vector<double> by_rank[2];
  for (auto& values : by_rank) values.assign(order.size() * n, 0);
  const auto& members = context.tables().collective_ranks;
  for (std::size_t c = 0; c < collectives; ++c) {
    if (!context.Counts(c) || context.OfSameKernel(c)) continue;
    const std::size_t first = context.timeline().FirstMember(c), end = context.timeline().FirstMember(c + 1);
    for (std::size_t charged = first; charged < end; ++charged) {
      const std::size_t p = context.Position(members.rank[charged]);
      if (p == analysis::kNowhere || row_of[p] == analysis::kNowhere) continue;
      for (std::size_t m = first; m < end; ++m)
        if (const std::size_t waiting = context.Position(members.rank[m]); waiting != analysis::kNowhere)
          by_rank[0][row_of[p] * n + waiting] += charges.Of(m, charged);
    }
  }
  analysis::EachMessageWait(context, [&](std::size_t for_whom, std::size_t waiting, double ns) {
    if (row_of[for_whom] != analysis::kNowhere) by_rank[1][row_of[for_whom] * n + waiting] += ns;
  });
  const std::size_t per_column = std::max<std::size_t>(1, (n + limits.columns - 1) / limits.columns),
                    columns = (n + per_column - 1) / per_column;
  std::vector<std::int64_t> cells[2];
  for (std::size_t k = 0; k < 2; ++k) {
    cells[k].assign(order.size() * columns, 0);
    for (std::size_t row = 0; row < order.size(); ++row)
      for (std::size_t p = 0; p < n; ++p) {
        std::int64_t& cell = cells[k][row * columns + p / per_column];
        cell = std::max<std::int64_t>(cell, std::llround(by_rank[k][row * n + p]));
      }
  }
  std::vector<std::int32_t> rows;
  for (const std::size_t p : order) rows.push_back(context.ranks()[p]);
  std::vector<std::int64_t> waiting;
  for (std::size_t column = 0; column < columns; ++column) waiting.push_back(context.ranks()[column * per_column]);
  return {{"all_ranks", n},
          {"awaited_ranks", all},
          {"untold_ns", std::llround(time.untold_ns)},
          {"awaited", rows},
          {"waiting", Packed(waiting)},
          {"ranks_per_column", per_column},
          {"collective_ns", Packed(cells[0])},
          {"message_ns", Packed(cells[1])}};
}

}  // namespace lockstep::report
