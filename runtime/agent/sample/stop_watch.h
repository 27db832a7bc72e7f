#pragma once
// Notices what holds up a job and no record of its processes shows: that a signal or a debugger has stopped one, and in
// which system call one sleeps that has recorded nothing for long.

#include <cstdint>
#include <map>
#include <string>

#include "core/ring_layout.h"

namespace lockstep::agent {

class StopWatch {
 public:
  // Looks at each process that records, and gives the lines of the spool's meta that changed since the last time:
  // "stopped.PID", since when (nanoseconds of the rank clock), "" if it goes on; "was_stopped.PID", "FROM TO;" for each
  // time until it went on; "blocked.PID", in what (BlockedIn), "" in nothing. `quiet`: nothing was recorded for long;
  // only then is it asked in what they are blocked.
  std::string Look(const SegmentView& segment, std::int64_t now_ns, bool quiet);
  // Whether a process slept in a system call when Look asked last.
  bool blocked() const;

 private:
  struct Stops {
    std::int64_t since_ns = 0;  // 0: it is not stopped.
    int count = 0;
    std::string ended;
  };
  std::map<std::int64_t, Stops> stopped_;        // By pid.
  std::map<std::int64_t, std::string> blocked_;  // By pid; "" in nothing.
};

}  // namespace lockstep::agent
