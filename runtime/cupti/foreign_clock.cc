#include "runtime/cupti/foreign_clock.h"

#include <cmath>

namespace lockstep::cupti {
namespace {

constexpr double kJumpNs = 1e6, kDrift = 1e-3;
// A rate is measured over the last 10 to 20 seconds, because CLOCK_REALTIME is slewed, and never over less than a
// millisecond.
constexpr double kShortNs = 1e6, kLongNs = 1e10;

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
    *known = {clock, pair, pair, pair, 0, ticks_per_ns, false};
    return;
  }
  const auto ticks_since = [&](const ClockPair& then) { return static_cast<double>(pair.ticks - then.ticks); };
  const auto time_since = [&](const ClockPair& then) {
    return static_cast<double>(static_cast<std::int64_t>(pair.time - then.time));
  };
  // CUPTI documents nanoseconds; used until the rate is measured.
  if (!known->measured) known->ticks_per_unit = ticks_per_ns;
  const double expected = ticks_since(known->last) / known->ticks_per_unit, seen = time_since(known->last);
  if (std::abs(seen - expected) > kJumpNs + kDrift * expected) {
    // No clock drifts like that: it was set, or its unit is not what was assumed.
    known->jumped_ticks = pair.ticks;
    known->measured = clock != RealtimeNs && seen > 0;
    if (known->measured) known->ticks_per_unit = ticks_since(known->last) / seen;
    known->first = known->middle = pair;
  } else if (ticks_since(known->first) > kShortNs * ticks_per_ns && time_since(known->first) > 0) {
    known->ticks_per_unit = ticks_since(known->first) / time_since(known->first);
    known->measured = true;
  }
  known->last = pair;
  if (ticks_since(known->middle) <= kLongNs * ticks_per_ns) return;
  known->first = known->middle;
  known->middle = pair;
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
