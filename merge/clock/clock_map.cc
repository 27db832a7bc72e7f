#include "merge/clock/clock_map.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace lockstep::merge {
namespace {

// First knot with local_ns > t.
std::size_t After(const std::vector<MapKnot>& knots, std::int64_t t) {
  return static_cast<std::size_t>(
      std::upper_bound(knots.begin(), knots.end(), t,
                       [](std::int64_t value, const MapKnot& k) { return value < k.local_ns; }) -
      knots.begin());
}

}  // namespace

std::int64_t ClockMap::OffsetAt(std::int64_t t) const {
  if (knots.size() == 1) return knots[0].offset_ns;
  std::size_t right = After(knots, t);
  right = std::clamp<std::size_t>(right, 1, knots.size() - 1);
  const MapKnot &a = knots[right - 1], &b = knots[right];
  // Differences are small, so double is exact enough (2^53 ns is 104 days); absolute times would not be.
  const double share = static_cast<double>(t - a.local_ns) / static_cast<double>(b.local_ns - a.local_ns);
  return a.offset_ns + std::llround(share * static_cast<double>(b.offset_ns - a.offset_ns));
}

std::int64_t ClockMap::ErrorAt(std::int64_t t) const {
  const std::size_t right = After(knots, t);
  std::size_t nearest = right == 0 ? 0 : right - 1;
  if (right > 0 && right < knots.size() && knots[right].local_ns - t < t - knots[right - 1].local_ns) nearest = right;
  const MapKnot& knot = knots[nearest];
  const double distance_s = static_cast<double>(std::llabs(t - knot.local_ns)) * 1e-9;
  auto base = static_cast<double>(knot.base_error_ns);
  if (right > 0 && right < knots.size()) {
    const MapKnot &a = knots[right - 1], &b = knots[right];
    const double share = static_cast<double>(t - a.local_ns) / static_cast<double>(b.local_ns - a.local_ns);
    base = static_cast<double>(a.base_error_ns) + share * static_cast<double>(b.base_error_ns - a.base_error_ns);
  }
  return static_cast<std::int64_t>(std::ceil(base + distance_s * static_cast<double>(knot.slew_ppb)));
}

void Normalise(std::vector<MapKnot>* knots) {
  std::stable_sort(knots->begin(), knots->end(),
                   [](const MapKnot& a, const MapKnot& b) { return a.local_ns < b.local_ns; });
  std::vector<MapKnot> kept;
  for (const MapKnot& knot : *knots) {
    if (!kept.empty() && kept.back().local_ns == knot.local_ns) {
      // Two statements about one instant: the first stays, its error covers both.
      MapKnot& last = kept.back();
      last.base_error_ns =
          std::max<std::int64_t>(last.base_error_ns, std::llabs(knot.offset_ns - last.offset_ns) + knot.base_error_ns);
      last.slew_ppb = std::max(last.slew_ppb, knot.slew_ppb);
      continue;
    }
    kept.push_back(knot);
    if (kept.size() < 2) continue;
    const MapKnot& before = kept[kept.size() - 2];
    MapKnot& now = kept.back();
    // Cluster time must grow: at least 1 ns per local ns is too much to ask, so ask for 1 ns per step.
    const std::int64_t least = before.offset_ns - (now.local_ns - before.local_ns) + 1;
    if (now.offset_ns < least) {
      now.base_error_ns += least - now.offset_ns;
      now.offset_ns = least;
    }
  }
  *knots = std::move(kept);
}

}  // namespace lockstep::merge
