#include "merge/clock/burst_knots.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "merge/rules/clock.h"

namespace lockstep::merge {
namespace {

const OffsetBounds& Tightest(const Burst& burst) {
  return *std::min_element(burst.exchanges.begin(), burst.exchanges.end(),
                           [](const OffsetBounds& a, const OffsetBounds& b) { return a.width_ns() < b.width_ns(); });
}

std::int64_t Middle(const OffsetBounds& e) { return e.low_at_ns + (e.high_at_ns - e.low_at_ns) / 2; }

struct Slope {
  double rate = 0, doubt = rules::kClockCrystalsDrift;
};

// From the nearest knots on both sides that are far enough away.
Slope LocalSlope(const std::vector<OffsetKnot>& knots, std::size_t k) {
  std::size_t left = k, right = k;
  while (left > 0 && knots[k].local_ns - knots[left].local_ns < rules::kClockDriftSpanNs) --left;
  while (right + 1 < knots.size() && knots[right].local_ns - knots[k].local_ns < rules::kClockDriftSpanNs) ++right;
  const auto span = static_cast<double>(knots[right].local_ns - knots[left].local_ns);
  if (span < static_cast<double>(rules::kClockDriftSpanNs)) return {};
  const double rate = static_cast<double>(knots[right].mid_ns() - knots[left].mid_ns()) / span;
  const double doubt = static_cast<double>(knots[right].half_ns() + knots[left].half_ns()) / span;
  // Wide knots bound the drift less than the known tolerance of crystals does.
  const double low = std::max(rate - doubt, -rules::kClockCrystalsDrift),
               high = std::min(rate + doubt, rules::kClockCrystalsDrift);
  if (low <= high) return {(low + high) / 2, (high - low) / 2};
  // A jump between the two is not drift.
  if (std::abs(rate) > rules::kClockDriftBelieved * rules::kClockCrystalsDrift) return {};
  return {rate, doubt};
}

}  // namespace

std::vector<OffsetKnot> KnotsOfBursts(const std::vector<Burst>& bursts) {
  std::vector<const Burst*> order;
  for (const Burst& burst : bursts) order.push_back(&burst);
  const auto time = [](const Burst* b) { return Middle(Tightest(*b)); };
  std::stable_sort(order.begin(), order.end(), [&](const Burst* a, const Burst* b) { return time(a) < time(b); });
  // First by the tightest exchange alone, whose two bounds are microseconds apart ...
  std::vector<OffsetKnot> first;
  for (const Burst* burst : order) {
    const OffsetBounds& best = Tightest(*burst);
    first.push_back({Middle(best), best.low_ns, best.high_ns, 0});
  }
  // ... then by all, now that the drift between them is known.
  std::vector<OffsetKnot> knots = first;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const Slope slope = LocalSlope(first, k);
    OffsetKnot& knot = knots[k];
    const auto moved = [&](std::int64_t bound, std::int64_t at, double doubt_sign) {
      const auto distance = static_cast<double>(knot.local_ns - at);
      return bound + std::llround(slope.rate * distance + doubt_sign * slope.doubt * std::abs(distance));
    };
    const OffsetBounds& best = Tightest(*order[k]);
    knot.low_ns = moved(best.low_ns, best.low_at_ns, -1);
    knot.high_ns = moved(best.high_ns, best.high_at_ns, 1);
    for (const OffsetBounds& exchange : order[k]->exchanges) {
      const std::int64_t low = moved(exchange.low_ns, exchange.low_at_ns, -1);
      const std::int64_t high = moved(exchange.high_ns, exchange.high_at_ns, 1);
      if (low > knot.high_ns || high < knot.low_ns) continue;
      knot.low_ns = std::max(knot.low_ns, low);
      knot.high_ns = std::min(knot.high_ns, high);
    }
  }
  return knots;
}

}  // namespace lockstep::merge
