#include "merge/clock/clock_map.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "merge/rules/clock.h"
#include "merge/saturated.h"

namespace lockstep::merge {
namespace {

// First knot with local_ns > t.
std::size_t After(const std::vector<MapKnot>& knots, std::int64_t t) {
  return static_cast<std::size_t>(
      std::upper_bound(knots.begin(), knots.end(), t,
                       [](std::int64_t value, const MapKnot& k) { return value < k.local_ns; }) -
      knots.begin());
}

// Offset change over `distance_ns` at a slope: the product stays far below 2^53 (ns: 104 days), so a double is exact to
// well under a nanosecond. Absolute times would not be.
std::int64_t OffsetChange(std::int64_t distance_ns, double slope) {
  return static_cast<std::int64_t>(std::llround(static_cast<double>(distance_ns) * slope));
}

std::int64_t Grown(const MapKnot& knot, double base_ns, std::int64_t local_ns) {
  const double distance = std::fabs(static_cast<double>(local_ns) - static_cast<double>(knot.local_ns));
  const double growth = distance * 1e-9 * static_cast<double>(knot.slew_ppb);
  if (growth >= rules::kClockErrorBoundedNs || base_ns >= rules::kClockErrorBoundedNs) return kForever;
  return Sum(static_cast<std::int64_t>(std::ceil(base_ns)), static_cast<std::int64_t>(std::ceil(growth)));
}

}  // namespace

ClockMap::ClockMap(const schema::Clock& clock, std::int32_t rank) {
  for (std::size_t i = 0; i < clock.rows(); ++i)
    if (clock.rank[i] == rank)
      knots.push_back({clock.local_ns[i], clock.offset_ns[i], clock.base_error_ns[i], clock.slew_ppb[i]});
  // What Lockstep wrote is normalised already; this makes sure that cluster time never runs backwards, whatever a file
  // contains.
  Normalise(&knots);
}

std::int64_t ClockMap::OffsetAt(std::int64_t t) const {
  if (knots.size() <= 1) return knots.empty() ? 0 : knots[0].offset_ns;
  const std::size_t right = std::clamp<std::size_t>(After(knots, t), 1, knots.size() - 1);
  const MapKnot &a = knots[right - 1], &b = knots[right];
  const double slope = static_cast<double>(b.offset_ns - a.offset_ns) / static_cast<double>(b.local_ns - a.local_ns);
  return a.offset_ns + OffsetChange(t - a.local_ns, slope);
}

std::int64_t ClockMap::ToLocal(std::int64_t cluster_ns) const {
  if (knots.size() <= 1) return cluster_ns - OffsetAt(cluster_ns);
  const auto after =
      std::upper_bound(knots.begin() + 1, knots.end() - 1, cluster_ns,
                       [](std::int64_t at, const MapKnot& knot) { return at < knot.local_ns + knot.offset_ns; });
  const MapKnot &a = after[-1], &b = *after;
  const std::int64_t cluster_a = a.local_ns + a.offset_ns, cluster_b = b.local_ns + b.offset_ns;
  const double slope = static_cast<double>(b.offset_ns - a.offset_ns) / static_cast<double>(cluster_b - cluster_a);
  return cluster_ns - a.offset_ns - OffsetChange(cluster_ns - cluster_a, slope);
}

std::int64_t ClockMap::ErrorAt(std::int64_t t) const {
  if (knots.empty()) return kForever;
  const std::size_t right = After(knots, t);
  if (right == 0) return Grown(knots.front(), static_cast<double>(knots.front().base_error_ns), t);
  if (right == knots.size()) return Grown(knots.back(), static_cast<double>(knots.back().base_error_ns), t);
  const MapKnot &a = knots[right - 1], &b = knots[right];
  // The base runs linearly from knot to knot; the slew is the nearer knot's.
  const double share = static_cast<double>(t - a.local_ns) / static_cast<double>(b.local_ns - a.local_ns);
  const double base = static_cast<double>(a.base_error_ns) +
                      share * (static_cast<double>(b.base_error_ns) - static_cast<double>(a.base_error_ns));
  return Grown(t - a.local_ns < b.local_ns - t ? a : b, base, t);
}

void Normalise(std::vector<MapKnot>* knots) {
  std::stable_sort(knots->begin(), knots->end(),
                   [](const MapKnot& a, const MapKnot& b) { return a.local_ns < b.local_ns; });
  std::vector<MapKnot> kept;
  for (const MapKnot& knot : *knots) {
    if (!kept.empty() && kept.back().local_ns == knot.local_ns) {
      // Two knots at one instant: the first stays, and its error covers both.
      MapKnot& last = kept.back();
      last.base_error_ns = std::max<std::int64_t>(last.base_error_ns,
                                                  Sum(std::llabs(knot.offset_ns - last.offset_ns), knot.base_error_ns));
      last.slew_ppb = std::max(last.slew_ppb, knot.slew_ppb);
      continue;
    }
    kept.push_back(knot);
    if (kept.size() < 2) continue;
    const MapKnot& before = kept[kept.size() - 2];
    MapKnot& now = kept.back();
    // Cluster time must grow. Demanding 1 ns per local ns would be too strict, so each step must grow by 1 ns at least.
    const std::int64_t least = before.offset_ns - (now.local_ns - before.local_ns) + 1;
    if (now.offset_ns < least) {
      now.base_error_ns = Sum(now.base_error_ns, least - now.offset_ns);
      now.offset_ns = least;
    }
  }
  *knots = std::move(kept);
}

}  // namespace lockstep::merge
