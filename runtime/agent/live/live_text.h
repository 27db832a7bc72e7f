#pragma once
// Formats the live figures as a line of text and for Prometheus.

#include <string>

#include "runtime/agent/live/live_figures.h"

namespace lockstep::agent {

// Returns one line. `expected`: ranks of the job; `period_ns`: since the last line.
std::string LiveLine(const LiveFigures& figures, std::int32_t expected, std::int64_t period_ns);

// Returns Prometheus text format 0.0.4: base units, one HELP and TYPE per metric; unknown values are left out.
// `realtime_ns`: when the figures were made.
std::string LiveMetrics(const LiveFigures& figures, std::int32_t expected, std::int64_t realtime_ns);

}  // namespace lockstep::agent
