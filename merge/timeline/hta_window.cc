#include "merge/timeline/hta_window.h"

#include <algorithm>

namespace lockstep::merge {

HtaWindow SelectHtaWindow(EventTables& tables, std::int64_t until_ns) {
  HtaWindow window;
  window.all = until_ns == schema::kNoTime;
  if (!window.all)
    ForEachRow(tables.api, [&](const auto& calls, std::size_t i) {
      if (calls.begin_ns[i] < until_ns && calls.correlation[i] != 0) window.launched.Insert(calls.correlation[i]);
    });

  Interval extent{INT64_MAX, INT64_MIN};
  const auto extend = [&](const auto& rows, std::size_t i) {
    if (window.Keeps(rows.correlation[i])) Extend(rows, i, extent);
  };
  tables.kernels.Choose<kKernelTimes>();
  ForEachRow(tables.kernels, extend);
  ForEachRow(tables.copies, extend);
  // HTA counts every row with a stream as GPU work: also waits for one stream, but not those for the device.
  ForEachRow(tables.sync, [&](const auto& rows, std::size_t i) {
    if (rows.stream[i] != schema::kNone) extend(rows, i);
  });
  if (extent.begin <= extent.end) window.extent = extent;
  return window;
}

}  // namespace lockstep::merge
