#include "hang/alarm.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace lockstep::hang {
namespace {

constexpr double kNoHealthyJob = 1, kMayEnd = 2.5, kMayBeWork = 6;
// A thread that uses less of a core is asleep.
constexpr double kAsleep = 0.05;

// A service that has nothing to do, or a process that waits for another one's word.
bool ListensOutside(const RankFacts& facts) {
  return facts.asleep_in == "poll" || facts.asleep_in == "accept" || facts.asleep_in == "recv";
}

bool AllSleep(const Progress& progress, const std::vector<std::int32_t>& ranks) {
  return std::all_of(ranks.begin(), ranks.end(), [&](std::int32_t rank) {
    const RankFacts* facts = FactsOf(progress, rank);
    return facts != nullptr && facts->cpu_share >= 0 && facts->cpu_share < kAsleep && !ListensOutside(*facts);
  });
}

// Whether a rank has completed an operation while these have been waiting.
bool OthersGoOn(const Progress& progress, const Verdict& verdict, std::int64_t after_ns) {
  return std::any_of(progress.ranks.begin(), progress.ranks.end(), [&](const RankFacts& facts) {
    const bool gone = facts.state == RankState::kExited || facts.state == RankState::kKilled;  // Until its end it did.
    return !gone && facts.moved_ns != kNotKnown && facts.seen_ns != kNotKnown &&
           facts.seen_ns - facts.moved_ns < after_ns &&
           (!std::binary_search(verdict.waiting.begin(), verdict.waiting.end(), facts.rank) ||
            std::binary_search(verdict.joined.begin(), verdict.joined.end(), facts.rank));
  });
}

// Ranks of which nothing is there: their host cannot be reached, or they run without Lockstep.
bool NothingIsKnown(const Progress& progress, const std::vector<std::int32_t>& ranks) {
  return !ranks.empty() && std::all_of(ranks.begin(), ranks.end(), [&](std::int32_t rank) {
    const RankFacts* facts = FactsOf(progress, rank);
    return facts == nullptr || facts->state == RankState::kMissing;
  });
}

// Whether a wait of this cause may have been seen before, and end as that one did.
bool ComesToAnEnd(Cause cause) {
  return cause == Cause::kDidNotEnter || cause == Cause::kAllInside || cause == Cause::kBehindOnGpu ||
         cause == Cause::kUnreachable || cause == Cause::kStopped || cause == Cause::kNoDump ||
         cause == Cause::kCannotTell;
}

}  // namespace

double AllowanceOf(const Progress& progress, const Verdict& verdict, std::int64_t after_ns) {
  double allowance = kNoHealthyJob;
  switch (verdict.cause) {
    case Cause::kNoDump:
    case Cause::kCannotTell:
      if (!NothingIsKnown(progress, verdict.culprits) && !NothingIsKnown(progress, verdict.candidates) &&
          !verdict.outside && !verdict.nobody_outside)
        return 0;
      allowance = kMayBeWork;
      break;
    case Cause::kDidNotEnter:
      allowance = !verdict.culprits.empty() && AllSleep(progress, verdict.culprits) ? kMayEnd : kMayBeWork;
      break;
    case Cause::kAllInside:
    case Cause::kExtraOrMissingCall:
      allowance = kMayEnd;
      break;
    default:
      break;
  }
  return OthersGoOn(progress, verdict, after_ns) ? std::max(allowance, kMayBeWork) : allowance;
}

void KeepAlarms(const Progress& progress, std::int64_t after_ns, Judgement& judgement) {
  std::erase_if(judgement.verdicts, [&](const Verdict& verdict) {
    const double allowance = AllowanceOf(progress, verdict, after_ns);
    if (allowance == 0 || verdict.waited_ns == kNotKnown) return true;
    std::int64_t least_ns = std::llround(allowance * static_cast<double>(after_ns));
    if (!ComesToAnEnd(verdict.cause)) return verdict.waited_ns < least_ns;
    for (const std::int32_t rank : verdict.waiting)
      if (const RankFacts* facts = FactsOf(progress, rank); facts != nullptr && facts->longest_wait_ns != kNotKnown)
        least_ns = std::max(least_ns, 2 * facts->longest_wait_ns);
    return verdict.waited_ns < least_ns;
  });
}

}  // namespace lockstep::hang
