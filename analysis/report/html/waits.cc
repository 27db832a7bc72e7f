#include "analysis/report/html/waits.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace lockstep::report {
namespace {

// visit(position of the awaited rank, or kNowhere where it is not known; of the one that waits; ns; in a collective)
template <typename Visit>
void EachWait(const analysis::Context& context, Visit&& visit) {
  const auto& collectives = context.tables().collectives;
  const auto& members = context.tables().collective_ranks;
  for (std::size_t c = 0; c < collectives.rows(); ++c) {
    if (!context.Comparable(c)) continue;
    const std::size_t last =
        collectives.last_rank[c] < 0 ? analysis::kNowhere : context.Position(collectives.last_rank[c]);
    for (std::size_t m = context.timeline().FirstMember(c); m < context.timeline().FirstMember(c + 1); ++m) {
      if (members.wait_ns[m] <= 0) continue;
      const std::size_t waiting = context.Position(members.rank[m]);
      if (waiting != analysis::kNowhere && waiting != last) visit(last, waiting, members.wait_ns[m], true);
    }
  }
  const auto& pairs = context.tables().p2p_pairs;
  for (std::size_t i = 0; i < pairs.rows(); ++i) {
    const std::size_t source = context.Position(pairs.source_rank[i]),
                      destination = context.Position(pairs.destination_rank[i]);
    if (source == analysis::kNowhere || destination == analysis::kNowhere || source == destination) continue;
    if (pairs.late_sender_ns[i] > 0) visit(source, destination, pairs.late_sender_ns[i], false);
    if (pairs.late_receiver_ns[i] > 0) visit(destination, source, pairs.late_receiver_ns[i], false);
  }
}

}  // namespace

PageJson WaitsOf(const analysis::Context& context, const WaitLimits& limits) {
  const std::size_t n = context.ranks().size();
  std::vector<std::int64_t> awaited(n, 0);
  std::int64_t untold = 0;
  EachWait(context, [&](std::size_t last, std::size_t, std::int64_t ns, bool) {
    (last == analysis::kNowhere ? untold : awaited[last]) += ns;
  });
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
  std::vector<std::int64_t> by_rank[2];
  for (auto& values : by_rank) values.assign(order.size() * n, 0);
  EachWait(context, [&](std::size_t last, std::size_t waiting, std::int64_t ns, bool collective) {
    if (last != analysis::kNowhere && row_of[last] != analysis::kNowhere)
      by_rank[collective ? 0 : 1][row_of[last] * n + waiting] += ns;
  });
  const std::size_t per_column = std::max<std::size_t>(1, (n + limits.columns - 1) / limits.columns),
                    columns = (n + per_column - 1) / per_column;
  std::vector<std::int64_t> cells[2];
  for (std::size_t k = 0; k < 2; ++k) {
    cells[k].assign(order.size() * columns, 0);
    for (std::size_t row = 0; row < order.size(); ++row)
      for (std::size_t p = 0; p < n; ++p) {
        std::int64_t& cell = cells[k][row * columns + p / per_column];
        cell = std::max(cell, by_rank[k][row * n + p]);
      }
  }
  std::vector<std::int32_t> rows;
  for (const std::size_t p : order) rows.push_back(context.ranks()[p]);
  std::vector<std::int64_t> waiting;
  for (std::size_t column = 0; column < columns; ++column) waiting.push_back(context.ranks()[column * per_column]);
  return {{"all_ranks", n},
          {"awaited_ranks", all},
          {"untold_ns", untold},
          {"awaited", rows},
          {"waiting", Packed(waiting)},
          {"ranks_per_column", per_column},
          {"collective_ns", Packed(cells[0])},
          {"message_ns", Packed(cells[1])}};
}

}  // namespace lockstep::report
