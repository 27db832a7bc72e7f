#include "runtime/cupti/cupti_clock.h"

#include <time.h>

#include "core/ring_writer.h"

namespace lockstep::cupti {

std::uint64_t OurTicks() { return ring::Ticks(); }

std::uint64_t RealtimeNs() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

bool SameClock(TimestampCallback a, TimestampCallback b) {
  if (a == nullptr) a = RealtimeNs;
  if (b == nullptr) b = RealtimeNs;
  if (a == b) return true;
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t before = a(), between = b(), after = a();
    if (between < before || between > after) return false;
  }
  return true;
}

ClockPair ReadPair(TimestampCallback clock) {
  if (clock == nullptr) clock = RealtimeNs;
  ClockPair best{};
  std::uint64_t narrowest = ~std::uint64_t{0};
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t before = ring::Ticks(), time = clock(), after = ring::Ticks();
    if (after - before >= narrowest) continue;
    narrowest = after - before;
    best = {time, before + narrowest / 2};
  }
  return best;
}

}  // namespace lockstep::cupti
