#include "make_run/clock.h"

#include <cmath>
#include <numbers>

namespace lockstep::make_run {

std::uint64_t Random(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
  const auto mix = [](std::uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  };
  std::uint64_t h = 0x6c6f636b;
  for (const std::uint64_t word : {a, b, c, d}) h = mix(h ^ mix(word + 0x9e3779b97f4a7c15u));
  return h;
}

TrueClock::TrueClock(const Spec& spec, std::int32_t rank) : epoch_ns_(spec.epoch_ns) {
  const auto at = spec.clocks.find(rank);
  const auto node = spec.node_clocks.find(spec.NodeOf(rank));
  if (at != spec.clocks.end())
    clock_ = at->second;
  else if (node != spec.node_clocks.end())
    clock_ = node->second;
}

std::int64_t TrueClock::Show(std::int64_t true_ns) const {
  const std::int64_t x = true_ns - epoch_ns_;
  double shift = static_cast<double>(x) * 1e-9 * static_cast<double>(clock_.drift_ppb);
  const auto wander = [&](std::int64_t amplitude, std::int64_t period) {
    if (amplitude != 0 && period != 0)
      shift += static_cast<double>(amplitude) *
               std::sin(2 * std::numbers::pi * static_cast<double>(x) / static_cast<double>(period));
  };
  wander(clock_.wander_ns, clock_.wander_period_ns);
  wander(clock_.wander2_ns, clock_.wander2_period_ns);
  std::int64_t shown = true_ns + clock_.offset_ns + std::llround(shift);
  if (clock_.step_at_ns >= 0 && x >= clock_.step_at_ns) shown += clock_.step_ns;
  return shown;
}

}  // namespace lockstep::make_run
