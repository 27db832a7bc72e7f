#pragma once
// Notices processes that a signal or a debugger has stopped: what holds up a job and no record of the process shows.

#include <cstdint>
#include <map>
#include <string>

#include "core/ring_layout.h"

namespace lockstep::agent {

class StopWatch {
 public:
  // Looks at each process that records, and gives the lines of the spool's meta that changed since the last time:
  // "stopped.PID", since when (nanoseconds of the rank clock), "" if it goes on.
  std::string Look(const SegmentView& segment, std::int64_t now_ns);

 private:
  std::map<std::int64_t, bool> stopped_;  // By pid.
};

}  // namespace lockstep::agent
