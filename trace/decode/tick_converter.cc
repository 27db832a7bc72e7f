#include "trace/decode/tick_converter.h"

#include <algorithm>

namespace lockstep::trace {
namespace {

__extension__ using Int128 = __int128;

constexpr std::int64_t kLongSpanNs = 1'000'000'000;

// Rounds to nearest; clamps values beyond 64 bits, which only come from damaged ticks.
std::int64_t Scale(std::int64_t ns, Int128 delta_ticks, std::int64_t span_ns, std::int64_t span_ticks) {
  Int128 product = delta_ticks * span_ns;
  const Int128 half = span_ticks / 2;
  product = product >= 0 ? (product + half) / span_ticks : (product - half) / span_ticks;
  product += ns;
  constexpr Int128 kLow = INT64_MIN + 1, kHigh = INT64_MAX;
  return static_cast<std::int64_t>(std::clamp(product, kLow, kHigh));
}

}  // namespace

TickMap::TickMap(std::vector<ClockSnapshot> snapshots, bool raw_mode, double ticks_per_ns) {
  // Beyond 70 years of uptime they are damaged, and their differences would overflow.
  constexpr std::int64_t kLimit = std::int64_t{1} << 61;
  std::erase_if(snapshots, [](const ClockSnapshot& snapshot) {
    const auto ticks = static_cast<std::int64_t>(snapshot.ticks);
    return ticks <= -kLimit || ticks >= kLimit || snapshot.raw_ns <= -kLimit || snapshot.raw_ns >= kLimit;
  });
  identity_ = raw_mode || snapshots.empty() ||
              std::all_of(snapshots.begin(), snapshots.end(), [](const ClockSnapshot& snapshot) {
                return snapshot.ticks == static_cast<std::uint64_t>(snapshot.raw_ns);
              });
  if (identity_) return;
  std::stable_sort(snapshots.begin(), snapshots.end(), [](const ClockSnapshot& a, const ClockSnapshot& b) {
    return static_cast<std::int64_t>(a.ticks) < static_cast<std::int64_t>(b.ticks);
  });
  for (const ClockSnapshot& snapshot : snapshots) {
    const Knot knot{static_cast<std::int64_t>(snapshot.ticks), snapshot.raw_ns};
    if (knots_.empty() || (knot.ticks > knots_.back().ticks && knot.ns > knots_.back().ns)) knots_.push_back(knot);
  }
  const std::size_t last = knots_.size() - 1;
  if (last == 0) {
    constexpr std::int64_t kSpan = 1'000'000'000;
    if (ticks_per_ns > 1e-3 && ticks_per_ns < 1e3)
      before_ = after_ = {static_cast<std::int64_t>(ticks_per_ns * static_cast<double>(kSpan)), kSpan};
    return;
  }
  // Over a second or more if possible: the bracket of a snapshot is some ten ns, so a slope over 10 ms would be
  // uncertain by 1e-6.
  std::size_t i = 1;
  while (i < last && knots_[i].ns - knots_[0].ns < kLongSpanNs) ++i;
  before_ = {knots_[i].ticks - knots_[0].ticks, knots_[i].ns - knots_[0].ns};
  i = last - 1;
  while (i > 0 && knots_[last].ns - knots_[i].ns < kLongSpanNs) --i;
  after_ = {knots_[last].ticks - knots_[i].ticks, knots_[last].ns - knots_[i].ns};
}

std::int64_t TickConverter::Interpolate(std::int64_t ticks) {
  const auto& knots = map_->knots_;
  if (ticks < knots.front().ticks || ticks > knots.back().ticks) {
    ++extrapolated_;
    const bool before = ticks < knots.front().ticks;
    const TickMap::Knot& knot = before ? knots.front() : knots.back();
    const TickMap::Knot& slope = before ? map_->before_ : map_->after_;
    return Scale(knot.ns, Int128{ticks} - knot.ticks, slope.ns, slope.ticks);
  }
  if (knots.size() == 1) return knots[0].ns;
  if (ticks < knots[at_].ticks || ticks > knots[at_ + 1].ticks) {
    if (at_ + 2 < knots.size() && ticks >= knots[at_ + 1].ticks && ticks <= knots[at_ + 2].ticks) {
      ++at_;
    } else {
      const auto above = std::upper_bound(knots.begin(), knots.end() - 1, ticks,
                                          [](std::int64_t t, const TickMap::Knot& knot) { return t < knot.ticks; });
      at_ = static_cast<std::size_t>(above - knots.begin()) - 1;
    }
  }
  const TickMap::Knot &low = knots[at_], &high = knots[at_ + 1];
  return Scale(low.ns, Int128{ticks} - low.ticks, high.ns - low.ns, high.ticks - low.ticks);
}

}  // namespace lockstep::trace
