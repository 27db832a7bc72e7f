#pragma once
// Ticks of the event clock -> nanoseconds of the rank clock, by exact integer
// interpolation between clock snapshots.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/event_clock.h"

namespace lockstep {

// The snapshots, sorted and made strictly increasing. Shared by many converters.
class TickMap {
 public:
  // `raw_mode`: ticks are nanoseconds already. `ticks_per_ns` is used where there
  // are not two snapshots; 0 unknown: one tick is taken for one ns.
  TickMap(std::vector<ClockSnapshot> snapshots, bool raw_mode, double ticks_per_ns);
  bool identity() const { return identity_; }

 private:
  friend class TickConverter;
  struct Knot {
    std::int64_t ticks, ns;
  };
  bool identity_;
  std::vector<Knot> knots_;
  // Slopes outside the knots: span in ns per span in ticks.
  Knot before_{1, 1}, after_{1, 1};
};

// Remembers where it was: amortised constant time for times that mostly grow.
// Thread: one at a time.
class TickConverter {
 public:
  explicit TickConverter(const TickMap& map) : map_(&map) {}
  std::int64_t Ns(std::uint64_t ticks) {
    if (map_->identity_) return static_cast<std::int64_t>(ticks);
    return Interpolate(static_cast<std::int64_t>(ticks));
  }
  std::uint64_t extrapolated() const { return extrapolated_; }  // Conversions outside the snapshots.

 private:
  std::int64_t Interpolate(std::int64_t ticks);
  const TickMap* map_;
  std::size_t at_ = 0;
  std::uint64_t extrapolated_ = 0;
};

}  // namespace lockstep
