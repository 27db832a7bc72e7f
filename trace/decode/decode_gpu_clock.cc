#include "trace/decode/decode_gpu_clock.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "trace/decode/gpu_clock_shift.h"

namespace lockstep::trace {
namespace {

using schema::kNoTime;

constexpr std::int64_t kForever = INT64_MAX;
// A bound that is found within such a stretch needs no assumption about drift.
constexpr std::int64_t kStretchNs = 100'000'000, kTightNs = 1'000'000;
constexpr std::size_t kLeastStretches = 4, kMostStretches = 64;
// If the host never waits, evidence from outside the stretch is used, and this much drift is allowed for.
constexpr double kDrift = 100e-6, kMostSlack = 1e15;

// Bounds within stretches of time, so that the drift of a clock is visible; then the hull of all.
void Bound(const GpuClockEvidence& evidence, GpuClock& clock) {
  std::int64_t first = kForever, last = INT64_MIN;
  for (const auto* list : {&evidence.at_most, &evidence.at_least})
    for (const GpuClockBound& one : *list) first = std::min(first, one.at_ns), last = std::max(last, one.at_ns);
  std::int64_t span = 0;
  if ((evidence.at_most.empty() && evidence.at_least.empty()) || !NearDifference(last, first, &span)) return;
  const std::size_t stretches =
      std::clamp<std::size_t>(static_cast<std::size_t>(span / kStretchNs), kLeastStretches, kMostStretches);
  const std::int64_t length = span / static_cast<std::int64_t>(stretches) + 1;
  const auto stretch = [&](const GpuClockBound& one) { return static_cast<std::size_t>((one.at_ns - first) / length); };
  std::vector<std::int64_t> high(stretches, kForever), low(stretches, -kForever);
  for (const GpuClockBound& one : evidence.at_most) high[stretch(one)] = std::min(high[stretch(one)], one.bound_ns);
  for (const GpuClockBound& one : evidence.at_least) low[stretch(one)] = std::max(low[stretch(one)], one.bound_ns);

  // A steady drift is limited by the bounds of every two stretches, wherever in them they apply.
  double most = INFINITY, least = 0;
  for (std::size_t i = 0; i < stretches; ++i)
    for (std::size_t j = i + 2; j < stretches; ++j) {
      const double far = static_cast<double>(j - i + 1) * static_cast<double>(length);
      const double near = static_cast<double>(j - i - 1) * static_cast<double>(length);
      const auto open = [](std::int64_t up, std::int64_t down) {
        return static_cast<double>(up) - static_cast<double>(down);
      };
      if (high[j] != kForever && low[i] != -kForever && high[i] != kForever && low[j] != -kForever) {
        most = std::min(most, std::max({open(high[j], low[i]), open(high[i], low[j]), 0.0}) / near);
        least = std::max({least, open(low[j], high[i]) / far, open(low[i], high[j]) / far});
      }
    }
  const double believed = std::max(least, std::min(most, kDrift));
  std::int64_t hull_low = kForever, hull_high = -kForever;
  for (std::size_t k = 0; k < stretches; ++k) {
    const bool tight = high[k] != kForever && low[k] != -kForever && high[k] - low[k] <= kTightNs;
    const double drift = tight ? most : believed;
    std::int64_t up = kForever, down = -kForever;
    for (std::size_t j = 0; j < stretches; ++j) {
      const double distance = static_cast<double>(j > k ? j - k : k - j) + 1;
      if (j != k && !std::isfinite(drift)) continue;
      const auto slack = std::isfinite(drift)
                             ? static_cast<std::int64_t>(
                                   std::min(std::ceil(distance * static_cast<double>(length) * drift), kMostSlack))
                             : 0;
      if (high[j] != kForever) up = std::min(up, high[j] + slack);
      if (low[j] != -kForever) down = std::max(down, low[j] - slack);
    }
    // If the bounds contradict each other, the clock moved within the stretch, at least by this range.
    if (up != kForever && down != -kForever && down > up) std::swap(up, down);
    hull_high = std::max(hull_high, up);
    hull_low = std::min(hull_low, down);
  }
  if (hull_high != kForever) clock.high_ns = hull_high;
  if (hull_low != -kForever) clock.low_ns = hull_low;
}

}  // namespace

std::vector<GpuClock> CompareGpuClocks(const schema::RankTables& tables) {
  std::vector<GpuClock> clocks;
  for (const GpuClockEvidence& evidence : CompareGpuTimes(tables)) {
    GpuClock& clock = clocks.emplace_back();
    clock.device = evidence.device;
    for (const GpuClockBound& one : evidence.at_most)
      if (one.bound_ns < 0) {
        clock.early_starts += 1;
        clock.early_start_ns = std::max(clock.early_start_ns, -one.bound_ns);
      }
    for (const GpuClockBound& one : evidence.at_least)
      if (one.bound_ns > 0) {
        clock.early_returns += 1;
        clock.early_return_ns = std::max(clock.early_return_ns, one.bound_ns);
      }
    const GpuClockShift shift = FindShift(evidence);
    clock.contradicted_ns = std::abs(shift.move_ns) + shift.error_ns;
    Bound(evidence, clock);
  }
  return clocks;
}

}  // namespace lockstep::trace
