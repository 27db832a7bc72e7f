#pragma once
// The clocks that CUPTI's records may be on. CUPTI has one timestamp callback for all users, and each registration
// after the first makes it misplace kernels (pytorch/pytorch issue 192021: k re-registrations, k kernels at the head
// of each session on CUPTI's own clock). And it is to return nanoseconds (cupti_activity.h): profilers that find CUPTI
// by dlsym and register none (Triton's Proton, JAX) take times for that. So Lockstep registers none of its own, and
// times of records are converted.

#include <cstdint>

#include "runtime/cupti/abi.h"

namespace lockstep::cupti {

std::uint64_t OurTicks();
// CUPTI's clock without a callback on Linux: CLOCK_REALTIME in nanoseconds.
std::uint64_t RealtimeNs();

// Whether both always return the same time; null is CUPTI's own clock. Kineto's clock is the TSC, as ours is where the
// TSC can be used.
bool SameClock(TimestampCallback a, TimestampCallback b);

// The same moment on a clock and in ticks.
struct ClockPair {
  std::uint64_t time, ticks;
};
ClockPair ReadPair(TimestampCallback clock);

}  // namespace lockstep::cupti
