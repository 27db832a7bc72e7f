#include "trace/decode/gpu_clock_shift.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/rules/common.h"

namespace lockstep::trace {
namespace {

// By how much the times must move one way, for each launch or wait that rules out that they agree; the largest first.
using Needs = std::vector<std::int64_t>;

// Takes away the few that are far beyond all others, and returns how many.
std::uint64_t TakeOdd(Needs& needs, std::size_t enough) {
  std::size_t odd = 0;
  for (std::size_t i = 1; i < enough && i <= needs.size(); ++i)
    if (StandsOut(needs[i - 1], i < needs.size() ? needs[i] : rules::kGpuClockSlackNs)) odd = i;
  needs.erase(needs.begin(), needs.begin() + static_cast<std::ptrdiff_t>(odd));
  return odd;
}

// Launches limit a move to earlier times, waits one to later times. Sorted; positive: so far at most.
class Contradictions {
 public:
  Contradictions(const Needs& wanted, std::vector<std::int64_t> limits) : wanted_(wanted), limits_(std::move(limits)) {
    std::sort(limits_.begin(), limits_.end());
  }
  // That a move by `ns` leaves or makes, and the largest of them.
  std::uint64_t After(std::int64_t ns) const {
    const auto left = std::partition_point(wanted_.begin(), wanted_.end(),
                                           [&](std::int64_t want) { return want > ns + rules::kGpuClockSlackNs; });
    const auto made = std::lower_bound(limits_.begin(), limits_.end(), ns - rules::kGpuClockSlackNs);
    return static_cast<std::uint64_t>((left - wanted_.begin()) + (made - limits_.begin()));
  }
  std::int64_t LargestAfter(std::int64_t ns) const {
    const std::int64_t left = wanted_.empty() ? 0 : wanted_.front() - ns;
    const std::int64_t made = limits_.empty() ? 0 : ns - limits_.front();
    return std::max({left, made, std::int64_t{0}});
  }

 private:
  const Needs& wanted_;
  std::vector<std::int64_t> limits_;
};

Needs NeedsOf(const std::vector<GpuClockBound>& bounds, int sign) {
  Needs needs;
  for (const GpuClockBound& one : bounds)
    if (sign * one.bound_ns > rules::kGpuClockSlackNs) needs.push_back(sign * one.bound_ns);
  std::sort(needs.begin(), needs.end(), std::greater<>());
  return needs;
}

std::vector<std::int64_t> LimitsOf(const std::vector<GpuClockBound>& bounds, int sign, std::size_t odd) {
  std::vector<std::int64_t> limits;
  limits.reserve(bounds.size());
  for (const GpuClockBound& one : bounds) limits.push_back(sign * one.bound_ns);
  std::nth_element(limits.begin(), limits.begin() + static_cast<std::ptrdiff_t>(odd), limits.end());
  limits.erase(limits.begin(), limits.begin() + static_cast<std::ptrdiff_t>(odd));
  return limits;
}

}  // namespace

GpuClockShift FindShift(const GpuClockEvidence& evidence) {
  GpuClockShift shift;
  shift.device = evidence.device;
  Needs later = NeedsOf(evidence.at_most, -1), earlier = NeedsOf(evidence.at_least, 1);
  if (later.empty() && earlier.empty()) return shift;
  shift.odd_ns = std::max(later.empty() ? 0 : later.front(), earlier.empty() ? 0 : earlier.front());
  // A short trace has few waits: two of two are no accident.
  const std::size_t waits = evidence.at_least.size();
  const auto enough_of = [&](const Needs& needs) {
    return waits > 0 && NearlyAllOf(needs.size(), waits) ? rules::kMiddle - 1 : rules::kMiddle;
  };
  const std::size_t enough = std::min(enough_of(later), enough_of(earlier));
  shift.odd_starts = TakeOdd(later, enough_of(later));
  shift.odd_returns = TakeOdd(earlier, enough_of(earlier));
  shift.starts = later.size();
  shift.returns = earlier.size();

  // One way, since most of them want it: the least move that leaves the fewest contradictions.
  const bool to_later = later.size() >= earlier.size();
  const Needs& wanted = to_later ? later : earlier;
  const bool limited = !(to_later ? evidence.at_least : evidence.at_most).empty();
  const Contradictions contradictions(wanted, to_later ? LimitsOf(evidence.at_least, -1, shift.odd_returns)
                                                       : LimitsOf(evidence.at_most, 1, shift.odd_starts));
  const std::uint64_t now = contradictions.After(0);
  std::uint64_t fewest = now;
  std::int64_t move = 0;
  for (auto want = wanted.rbegin(); want != wanted.rend(); ++want)
    if (const std::uint64_t left = contradictions.After(*want); left < fewest) fewest = left, move = *want;

  const bool accidents = fewest < enough || LittleOf(fewest, waits);
  const bool agreed = now - fewest >= (limited ? enough : rules::kFewest);
  const std::int64_t left = contradictions.LargestAfter(move);
  if (agreed && (accidents || StandsOut(move, left))) {
    shift.move_ns = to_later ? move : -move;
    if (!accidents) shift.error_ns = left;
  } else if (now >= enough && !accidents) {
    shift.error_ns = contradictions.LargestAfter(0);
  }
  if (shift.disagree()) {
    if (shift.odd_starts + shift.odd_returns == 0) shift.odd_ns = 0;
    return shift;
  }
  shift.odd_starts += shift.starts, shift.odd_returns += shift.returns;
  shift.starts = shift.returns = 0;
  return shift;
}

}  // namespace lockstep::trace
