#include "merge/timeline/hta_window.h"

#include <algorithm>

namespace lockstep::merge {

HtaWindow SelectHtaWindow(EventTables& tables, std::int64_t until_ns) {
  HtaWindow window;
  window.all = until_ns == schema::kNoTime;
  tables.api.Rewind();
  while (const auto* calls = window.all ? nullptr : tables.api.Next())
    for (std::size_t i = 0; i < calls->rows(); ++i)
      if (calls->begin_ns[i] < until_ns && calls->correlation[i] != 0) window.launched.Insert(calls->correlation[i]);

  Interval extent{INT64_MAX, INT64_MIN};
  tables.kernels.Rewind();
  while (const auto* rows = tables.kernels.Next())
    for (std::size_t i = 0; i < rows->rows(); ++i)
      if (window.Keeps(rows->correlation[i])) Extend(*rows, i, extent);
  tables.copies.Rewind();
  while (const auto* rows = tables.copies.Next())
    for (std::size_t i = 0; i < rows->rows(); ++i)
      if (window.Keeps(rows->correlation[i])) Extend(*rows, i, extent);
  // It takes every row with a stream for GPU work: waits for one stream too, not those for the device.
  tables.sync.Rewind();
  while (const auto* rows = tables.sync.Next())
    for (std::size_t i = 0; i < rows->rows(); ++i)
      if (rows->stream[i] != schema::kNone && window.Keeps(rows->correlation[i])) Extend(*rows, i, extent);
  if (extent.begin <= extent.end) window.extent = extent;
  return window;
}

}  // namespace lockstep::merge
