#include "analysis/tables/engine/row_lists.h"

#include <algorithm>

#include "analysis/core/format.h"

namespace lockstep::tables {

const gpu::RankView::Step* StepAt(const gpu::RankView& rank, std::int64_t time_ns) {
  const auto after =
      std::upper_bound(rank.steps.begin(), rank.steps.end(), time_ns,
                       [](std::int64_t t, const gpu::RankView::Step& step) { return t < step.window.begin; });
  return after != rank.steps.begin() && time_ns < after[-1].window.end ? &after[-1] : nullptr;
}

void KeepLargest(const TableOptions& options, bool (*before)(const std::vector<Cell>&, const std::vector<Cell>&),
                 Table& table) {
  if (options.ranks.empty() && !options.every_rank) {
    std::stable_sort(table.rows.begin(), table.rows.end(), before);
    if (options.top != 0 && table.rows.size() > options.top) table.rows.resize(options.top);
  }
  const std::int64_t hidden = table.totals[std::string(kListedRows)] - static_cast<std::int64_t>(table.rows.size());
  if (hidden > 0) table.notes.push_back(analysis::Plural(hidden, "row") + " more: --top 0 shows all");
}

}  // namespace lockstep::tables
