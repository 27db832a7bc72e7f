#pragma once
// The only clock function. An event carries ticks; a snapshot relates ticks to nanoseconds. Ticks are the
// TSC where it is invariant, else CLOCK_MONOTONIC_RAW in ns. RAW is not slewed by NTP, so offsets between
// nodes stay smooth, and the TSC costs 10 ns a read where clock_gettime costs 22 (Sapphire Rapids, Linux
// 6.18).
//
// Tests distort the clock here and at no other point. A distorted clock is always in RAW mode, so that
// events, bursts and snapshots all see the same distortion.

#include <cstdint>
#include <string_view>

namespace lockstep {

enum class ClockMode : std::uint32_t { kRaw = 0, kTsc = 1 };

// distorted = raw + offset + ppm*1e-6*(raw-origin) + wander*sin(2*pi*(raw-origin)/period)
//           + (raw-origin >= step_at ? step : 0). All zero: no distortion.
struct ClockDistortion {
  std::int64_t offset_ns = 0;
  double ppm = 0;
  double wander_ns = 0;
  double wander_period_ns = 0;
  double wander2_ns = 0;
  double wander2_period_ns = 0;
  std::int64_t step_ns = 0;
  std::int64_t step_at_ns = 0;  // After origin.
  std::int64_t origin_raw_ns = 0;
  bool active() const { return offset_ns != 0 || ppm != 0 || wander_ns != 0 || wander2_ns != 0 || step_ns != 0; }
};
static_assert(sizeof(ClockDistortion) == 72);

std::int64_t Distort(const ClockDistortion& distortion, std::int64_t raw_ns);

// "1:offset_s=1000,ppm=50,wander_us=50,period_s=300,wander2_us=2,period2_s=12,step_ms=1,step_at_s=5;2:ppm=-50" Returns
// the part for `rank`, or an inactive distortion if the rank is not named or its part is malformed.
ClockDistortion ParseClockDistortion(std::string_view spec, int rank);

// constant_tsc and nonstop_tsc in /proc/cpuinfo and clocksource tsc in use.
bool TscIsInvariant();

// CLOCK_MONOTONIC_RAW, undistorted. Thread: any.
std::int64_t RawNs();

// This process's event clock. Set once before the first event, then read only.
struct EventClock {
  ClockMode mode = ClockMode::kRaw;
  ClockDistortion distortion;

  std::uint64_t Ticks() const;  // What events carry.
  std::int64_t RankNs() const;  // The rank clock now: distorted RAW. Bursts carry it.
};

inline std::uint64_t ReadTsc() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<std::uint64_t>(RawNs());
#endif
}

// One row of clock_snapshots; the tightest of five brackets.
struct ClockSnapshot {
  std::uint64_t ticks;
  std::int64_t raw_ns;  // Rank clock (distorted).
  std::int64_t monotonic_ns, realtime_ns;
  std::int64_t width_ns;
};
ClockSnapshot TakeSnapshot(const EventClock& clock);

// boot_id and time-namespace inode: processes with equal domains share the
// clock. A distorted clock is a domain of its own (`salt`).
// boot_id alone is not enough: another time namespace of the same boot shifts
// CLOCK_MONOTONIC and _RAW (tested with unshare --time, Linux 6.18).
std::uint64_t ClockDomainHash(const ClockDistortion& distortion, int rank);

}  // namespace lockstep
