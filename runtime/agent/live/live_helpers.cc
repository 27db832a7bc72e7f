#include "runtime/agent/live/live_helpers.h"

#include <utility>

#include "core/counter_curve.h"

namespace lockstep::agent {

void LiveHelpers::Did(LiveTicks ticks, bool input, bool gives_bucket_away) {
  did_.push_back({ticks, input, gives_bucket_away});
}

void LiveHelpers::Sampled(std::uint64_t ticks, std::int64_t run_delay_ns) {
  if (run_delay_ns >= 0) delays_.push_back({ticks, run_delay_ns});
}

std::uint64_t LiveHelpers::known_until_ticks() const { return delays_.empty() ? UINT64_MAX : delays_.back().ticks; }

IntervalSet LiveHelpers::Exposed(const std::vector<Step>& steps, const std::vector<Collective>& collectives,
                                 const NsOfTicks& ns_of_ticks) const {
  const auto span = [&](LiveTicks ticks) { return Interval{ns_of_ticks(ticks.begin), ns_of_ticks(ticks.end)}; };
  HelperEvidence evidence;
  std::vector<Interval> windows;
  for (const Step& step : steps) {
    if (step.cpu_ns < 0) continue;
    windows.push_back(span(step.window));
    evidence.steps.push_back({windows.back(), step.cpu_ns, -1});
  }
  CounterCurve delay(windows);
  for (const Delay& sample : delays_) delay.Add(ns_of_ticks(sample.ticks), sample.ns);
  for (std::size_t s = 0; s < windows.size(); ++s) evidence.steps[s].run_delay_ns = delay.Within(s);
  std::vector<Interval> carried;
  for (const Collective& one : collectives) {
    const bool said = one.queued != 0;
    evidence.collectives.push_back(
        {span(one.ticks), said ? ns_of_ticks(one.queued) : HelperEvidence::Collective::kNotSaid});
    if (said) evidence.signs.push_back(evidence.collectives.back().handed_over_ns);
    carried.push_back(evidence.collectives.back().carried);
  }
  for (const Done& one : did_) {
    const Interval at = span(one.ticks);
    evidence.signs.insert(evidence.signs.end(), {at.begin, at.end});
    if (one.input) evidence.input.push_back(at);
    if (one.gives) evidence.given.push_back(at.end);
  }
  const IntervalSet beside_input = Intersect(Normalize(evidence.input), Normalize(std::move(carried)));
  return Unite(beside_input, HelperWaits(std::move(evidence)));
}

void LiveHelpers::Forget(std::uint64_t before_ticks) {
  while (!did_.empty() && did_.front().ticks.end < before_ticks) did_.pop_front();
  // The counter's value at that time is interpolated between the last sample before and the first after it.
  while (delays_.size() > 1 && delays_[1].ticks <= before_ticks) delays_.pop_front();
}

}  // namespace lockstep::agent
