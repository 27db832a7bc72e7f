#pragma once
// Windows of steps on the GPU, which runs behind the host that marks them.

#include <vector>

#include "core/interval.h"
#include "core/schema.h"
#include "ingest/rank_files/event_reader.h"
#include "merge/steps/steps.h"
#include "merge/timeline/correlation_set.h"

namespace lockstep::merge {

// The columns that a pass over a rank uses.
inline constexpr schema::Columns<schema::Kernels> kKernelColumns(&schema::Kernels::begin_ns,
                                                                 &schema::Kernels::duration_ns,
                                                                 &schema::Kernels::correlation, &schema::Kernels::name,
                                                                 &schema::Kernels::work, &schema::Kernels::work_rule);
inline constexpr schema::Columns<schema::Kernels> kKernelTimes(&schema::Kernels::begin_ns,
                                                               &schema::Kernels::duration_ns,
                                                               &schema::Kernels::correlation);
inline constexpr schema::Columns<schema::Copies> kCopyTimes(&schema::Copies::begin_ns, &schema::Copies::duration_ns,
                                                            &schema::Copies::correlation);
inline constexpr schema::Columns<schema::Api> kApiColumns(&schema::Api::begin_ns, &schema::Api::correlation);
using KernelRows = ingest::RowCursor<schema::Kernels, kKernelColumns>;
using CopyRows = ingest::RowCursor<schema::Copies, kCopyTimes>;
using ApiRows = ingest::RowCursor<schema::Api, kApiColumns>;

// Calls f(rows, i) for each row of a table, from its beginning, a piece at a time.
template <typename Cursor, typename F>
void ForEachRow(Cursor& cursor, F&& f) {
  cursor.Rewind();
  while (const auto* rows = cursor.Next())
    for (std::size_t i = 0; i < rows->rows(); ++i) f(*rows, i);
}

// Widens `extent` by the events; {INT64_MAX, INT64_MIN} is empty.
template <typename Table>
void Extend(const Table& table, std::size_t row, Interval& extent) {
  extent.begin = std::min(extent.begin, table.begin_ns[row]);
  extent.end = std::max(extent.end, table.begin_ns[row] + table.duration_ns[row]);
}

struct GpuActivity {
  Interval extent{0, 0};   // From the first GPU event's begin to the last one's end; {0, 0} without any.
  CorrelationSet kernels;  // The launches that became a kernel.
};
// In one walk over the tables: they are the longest that a rank has. Needs begin_ns, duration_ns and correlation.
GpuActivity FindGpuActivity(KernelRows& kernels, CopyRows& copies);

// Replaces each window by the GPU's: from the first kernel launched in the step to the first kernel launched in the
// next one. Of marked steps the first begins where the host began it, if the device was idle then, and the last ends
// where the host ended it or where the work launched before that ended, whichever is later; a pause in the steps is
// such an end and begin. But the last one of a capture window ends with the first kernel after the window, which the
// rank's `head` contains: so a step is as long as if everything had been recorded. A step in which nothing was launched
// is empty and not complete. Of steps that were found in the GPU's own times the kernels that begin in them count.
// `activity`: of these kernels and copies. Of the kernels it chooses the columns that it needs.
std::vector<RankStep> GpuWindows(std::vector<RankStep> steps, StepTimes times, KernelRows& kernels, CopyRows& copies,
                                 ApiRows& all_calls, const GpuActivity& activity, const schema::RankTables& head);

}  // namespace lockstep::merge
