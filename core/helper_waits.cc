#include "core/helper_waits.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace lockstep {
namespace {

// Bounds the time between the end of the awaited operation and the next recorded event: the wake-up and, as a share of
// the wait, the processing of the result.
constexpr std::int64_t kWakeUpNs = 100'000;
constexpr double kAfterShare = 0.1;

// The last time in [window.begin, before); window.begin - 1 if there is none.
std::int64_t LastWithin(const std::vector<std::int64_t>& times, Interval window, std::int64_t before) {
  const auto after = std::lower_bound(times.begin(), times.end(), before);
  return after == times.begin() || after[-1] < window.begin ? window.begin - 1 : after[-1];
}

// The time in which the training thread only waited for this collective; empty if it had other work. The thread that
// carries out a collective wakes the waiting thread and records the end only afterwards (gloo in PyTorch 1.13:
// AsyncWork::finishWorkGloo), so the wait may be over before the recorded end.
Interval Waited(const HelperEvidence& evidence, const std::vector<Interval>& steps,
                const HelperEvidence::Collective& collective) {
  const std::int64_t end_ns = collective.carried.end;
  const bool said = collective.handed_over_ns != HelperEvidence::Collective::kNotSaid;
  const std::int64_t since_ns = said ? std::min(collective.handed_over_ns, end_ns) : collective.carried.begin;
  const auto step_of = [&](std::int64_t ns) -> const Interval* {
    const auto after = std::upper_bound(steps.begin(), steps.end(), ns,
                                        [](std::int64_t at, const Interval& window) { return at < window.begin; });
    return after == steps.begin() ? nullptr : &after[-1];
  };
  if (const Interval* step = step_of(end_ns - 1); step != nullptr && end_ns <= step->end)
    if (const std::int64_t given = LastWithin(evidence.given, *step, step->end); given >= step->begin)
      return {std::min(given, end_ns), end_ns};
  // The longest of the intervals between two signs that ended about then.
  const std::vector<std::int64_t>& signs = evidence.signs;
  Interval longest{end_ns, end_ns};
  auto sign = std::lower_bound(signs.begin(), signs.end(), end_ns);
  if (sign == signs.end() && sign != signs.begin()) --sign;
  for (; sign != signs.begin() && sign != signs.end(); --sign) {
    const std::int64_t before = sign[-1], after = *sign;
    if (after < end_ns - EndToleranceNs(end_ns - since_ns)) break;
    if (before >= end_ns || std::abs(after - end_ns) > EndToleranceNs(std::min(after, end_ns) - before)) continue;
    const Interval* step = step_of(before);
    const Interval waited{std::max(before, since_ns), std::min(after, end_ns)};
    if (step != nullptr && after <= step->end && waited.end - waited.begin > longest.end - longest.begin)
      longest = waited;
  }
  return longest;
}

// The last part of `set` whose total length is `ns`.
void AppendLast(const IntervalSet& set, std::int64_t ns, std::vector<Interval>& out) {
  for (auto at = set.rbegin(); at != set.rend() && ns > 0; ++at) {
    const std::int64_t length = std::min(ns, at->end - at->begin);
    out.push_back({at->end - length, at->end});
    ns -= length;
  }
}

}  // namespace

std::int64_t EndToleranceNs(std::int64_t waited_ns) {
  return kWakeUpNs + static_cast<std::int64_t>(kAfterShare * static_cast<double>(waited_ns));
}

IntervalSet HelperWaits(HelperEvidence evidence) {
  if (evidence.steps.empty() || evidence.collectives.empty()) return {};
  std::sort(
      evidence.steps.begin(), evidence.steps.end(),
      [](const HelperEvidence::Step& a, const HelperEvidence::Step& b) { return a.window.begin < b.window.begin; });
  std::vector<Interval> windows;
  for (const HelperEvidence::Step& step : evidence.steps) {
    windows.push_back(step.window);
    evidence.signs.insert(evidence.signs.end(), {step.window.begin, step.window.end});
  }
  std::sort(evidence.signs.begin(), evidence.signs.end());
  std::sort(evidence.given.begin(), evidence.given.end());
  const IntervalSet input = Normalize(std::move(evidence.input));

  std::vector<Interval> until_ends, carried;
  for (const HelperEvidence::Collective& collective : evidence.collectives) {
    until_ends.push_back(Waited(evidence, windows, collective));
    carried.push_back(collective.carried);
  }
  const IntervalSet candidates = Intersect(Normalize(std::move(until_ends)), Normalize(std::move(carried)));
  std::vector<Interval> waits;
  for (const HelperEvidence::Step& step : evidence.steps) {
    const std::int64_t blocked = step.window.end - step.window.begin - step.cpu_ns -
                                 std::max<std::int64_t>(0, step.run_delay_ns) - TotalWithin(input, step.window);
    AppendLast(Subtract(Clip(candidates, step.window), input), blocked, waits);
  }
  return Normalize(std::move(waits));
}

}  // namespace lockstep
