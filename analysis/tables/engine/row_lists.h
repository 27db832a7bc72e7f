#pragma once
// Tables that list single events: what they share.

#include <string>
#include <vector>

#include "analysis/tables/engine/table.h"

namespace lockstep::tables {

// The step whose window holds the time, null without one.
const gpu::RankView::Step* StepAt(const gpu::RankView& rank, std::int64_t time_ns);

// For `finish`: of all ranks' rows the first options.top in the order of `before`, unless
// single ranks were asked for (thousands of ranks times top rows help nobody), and a note
// of how many there were. rank_rows gives at most top rows and adds what it had to
// totals[kListedRows].
inline constexpr std::string_view kListedRows = "listed_rows";
void KeepLargest(const TableOptions& options, bool (*before)(const std::vector<Cell>&, const std::vector<Cell>&),
                 Table& table);

}  // namespace lockstep::tables
