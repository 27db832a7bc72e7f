#include "runtime/cupti/foreign_clock.h"

#include <cmath>

namespace lockstep::cupti {
namespace {

constexpr double kLongNs = 1e8, kJumpNs = 1e6, kDrift = 1e-3;

}  // namespace

void ForeignClocks::Follow(TimestampCallback clock, double ticks_per_ns) {
  if (clock == nullptr) clock = RealtimeNs;
  if (SameClock(clock, OurTicks)) return;
  const ClockPair pair = ReadPair(clock);
  Known* known = nullptr;
  for (int i = 0; i < used_ && known == nullptr; ++i)
    if (known_[i].clock == clock) known = &known_[i];
  if (known == nullptr) {
    known = &known_[used_ < kMost ? used_++ : kMost - 1];
    *known = {clock, pair, pair, 0, ticks_per_ns};
    return;
  }
  // Nanoseconds, says CUPTI; what others register is measured.
  if (clock == RealtimeNs) known->ticks_per_unit = ticks_per_ns;
  const double expected = static_cast<double>(pair.ticks - known->last.ticks) / known->ticks_per_unit;
  const auto seen = static_cast<double>(static_cast<std::int64_t>(pair.time - known->last.time));
  if (std::abs(seen - expected) > kJumpNs + kDrift * expected) {
    // No clock drifts like that: it was set, or its unit is not what it was taken for.
    known->jumped_ticks = pair.ticks;
    if (clock != RealtimeNs && seen > 0)
      known->ticks_per_unit = static_cast<double>(pair.ticks - known->last.ticks) / seen;
    known->first = pair;
  }
  known->last = pair;
  const auto ticks = static_cast<double>(pair.ticks - known->first.ticks);
  if (clock != RealtimeNs && ticks > kLongNs * ticks_per_ns && pair.time > known->first.time)
    known->ticks_per_unit = ticks / static_cast<double>(pair.time - known->first.time);
}

TimeScale ForeignClocks::Scale(TimestampCallback clock, std::uint64_t out_ticks) const {
  if (clock == nullptr) clock = RealtimeNs;
  TimeScale scale;
  if (SameClock(clock, OurTicks)) return scale;
  scale.foreign = true;
  scale.ticks_per_unit = 0;
  for (int i = 0; i < used_; ++i) {
    const Known& known = known_[i];
    if (known.clock == clock && out_ticks >= known.jumped_ticks)
      return {true, known.last.time, known.last.ticks, known.ticks_per_unit};
  }
  return scale;
}

}  // namespace lockstep::cupti
