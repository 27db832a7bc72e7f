#pragma once

#include <time.h>

#include <cstdint>

namespace lockstep {

// What one of the system's clocks (clock_gettime) shows, in ns; 0 if there is no such clock.
inline std::int64_t ClockNs(clockid_t id) {
  timespec now{};
  ::clock_gettime(id, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace lockstep
