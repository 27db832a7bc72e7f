#pragma once
// The live figures in words, and as Prometheus reads them.

#include <string>

#include "runtime/agent/live/live_figures.h"

namespace lockstep::agent {

// One line. `expected`: ranks of the job; `period_ns`: since the last line.
std::string LiveLine(const LiveFigures& figures, std::int32_t expected, std::int64_t period_ns);

// Prometheus text format 0.0.4: base units, one HELP and TYPE per metric; what is not known is left out.
// `realtime_ns`: of the figures.
std::string LiveMetrics(const LiveFigures& figures, std::int32_t expected, std::int64_t realtime_ns);

}  // namespace lockstep::agent
