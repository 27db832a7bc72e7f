#pragma once
// Turns raw clock exchanges into knots: hard bounds of the offset at one local time.

#include <cstdint>
#include <vector>

namespace lockstep::merge {

// The bounds that one exchange gives, wherever it was measured: the offset (peer minus local) is at most `high` at
// local time `high_at` and at least `low` at `low_at`. The difference of the bounds is the round trip without the
// peer's pause.
struct OffsetBounds {
  std::int64_t low_at_ns, low_ns, high_at_ns, high_ns;
  std::int64_t width_ns() const { return high_ns - low_ns; }
};
// t1 local send, t2 peer receive, t3 peer send, t4 local receive.
constexpr OffsetBounds BoundsOfOwn(std::int64_t t1, std::int64_t t2, std::int64_t t3, std::int64_t t4) {
  return {t4, t3 - t4, t1, t2 - t1};
}
// The same exchange from the peer's side: local and peer are swapped.
constexpr OffsetBounds BoundsOfPeers(std::int64_t t1, std::int64_t t2, std::int64_t t3, std::int64_t t4) {
  return {t2, t1 - t2, t3, t4 - t3};
}

struct Burst {
  std::vector<OffsetBounds> exchanges;  // Not empty.
};

struct OffsetKnot {
  std::int64_t local_ns;
  std::int64_t low_ns, high_ns;     // The offset is between these two.
  std::int64_t least_error_ns = 0;  // Used where the bounds are an estimate and not proven.
  std::int64_t mid_ns() const { return low_ns + (high_ns - low_ns) / 2; }
  std::int64_t half_ns() const { return (high_ns - low_ns + 1) / 2; }
};

// One knot per burst, sorted by time: the intersection of all its exchanges, each
// moved to the knot's time along the clock's own drift as the other bursts show
// it. Exchanges that contradict the tightest one (a jump within the burst) are
// left out.
std::vector<OffsetKnot> KnotsOfBursts(const std::vector<Burst>& bursts);

}  // namespace lockstep::merge
