#pragma once
// The window that Holistic Trace Analysis examines (f4d0062): all but the last of several profiler steps. For
// comparisons with its results.

#include "core/interval.h"
#include "merge/timeline/activity_stream.h"
#include "merge/timeline/correlation_set.h"

namespace lockstep::merge {

// Which GPU events of a rank count: those whose launching call began before a time,
// or all of them.
struct HtaWindow {
  bool all = true;
  CorrelationSet launched;
  Interval extent{0, 0};  // First begin to last end of what counts.

  bool Keeps(std::uint64_t correlation) const { return all || (correlation != 0 && launched.Contains(correlation)); }
};

// `until_ns`: begin of the rank's last profiler step; kNoTime: everything counts.
HtaWindow SelectHtaWindow(EventTables& tables, std::int64_t until_ns);

}  // namespace lockstep::merge
