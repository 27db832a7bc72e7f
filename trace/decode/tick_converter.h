#pragma once
// Converts ticks of the event clock to nanoseconds of the rank clock, by exact integer interpolation between clock
// snapshots.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/event_clock.h"

namespace lockstep::trace {

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

// Remembers its last position: amortised constant time for times that mostly grow. Thread: one at a time.
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

// end - begin of times that may be damaged: at least 0, and no overflow.
inline std::int64_t DurationNs(std::int64_t begin_ns, std::int64_t end_ns) {
  if (end_ns <= begin_ns) return 0;
  const std::uint64_t span = static_cast<std::uint64_t>(end_ns) - static_cast<std::uint64_t>(begin_ns);
  return span > INT64_MAX ? INT64_MAX : static_cast<std::int64_t>(span);
}

}  // namespace lockstep::trace
