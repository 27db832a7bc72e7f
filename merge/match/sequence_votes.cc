// Finds the position of a sequence of which so much is missing that no stretch of it fits as a whole.

#include <algorithm>
#include <tuple>

#include "core/rules/common.h"
#include "merge/match/sequence_parts.h"
#include "merge/rules/match.h"

namespace lockstep::merge {

std::optional<Candidate> PositionByVotes(const std::vector<OrderedOp>& spine, const std::vector<OrderedOp>& own,
                                         const OffsetPrior& prior) {
  if (spine.size() > rules::kVoteSpine) return std::nullopt;
  const std::size_t n = std::min(own.size(), rules::kVoteOperations), begin = (own.size() - n) / 2;
  struct Vote {
    std::int64_t difference_ns;
    std::uint32_t own, spine;
  };
  std::vector<Vote> votes;
  for (std::size_t j = begin; j < begin + n; ++j)
    for (std::size_t i = 0; i < spine.size(); ++i)
      if (own[j].together && spine[i].together && Compatible(spine[i], own[j]))
        votes.push_back(
            {spine[i].end_ns - own[j].end_ns, static_cast<std::uint32_t>(j), static_cast<std::uint32_t>(i)});
  if (votes.empty()) return std::nullopt;
  std::sort(votes.begin(), votes.end(), [](const Vote& a, const Vote& b) {
    return std::tie(a.difference_ns, a.own, a.spine) < std::tie(b.difference_ns, b.own, b.spine);
  });
  const std::int64_t width = rules::kLeaveTogetherNs + DriftWithin(own[begin + n - 1].end_ns - own[begin].end_ns);
  // Count the votes within a width from each on; then find the best, and the best of those that do not overlap it.
  std::vector<std::size_t> ends(votes.size());
  std::size_t best = 0, end = 0;
  for (std::size_t k = 0; k < votes.size(); ++k) {
    while (end < votes.size() && votes[end].difference_ns - votes[k].difference_ns <= width) ++end;
    ends[k] = end;
    if (end - k > ends[best] - best) best = k;
  }
  std::size_t second = 0;
  for (std::size_t k = 0; k < votes.size(); ++k)
    if (std::llabs(votes[k].difference_ns - votes[best].difference_ns) > 2 * width)
      second = std::max(second, ends[k] - k);
  const std::size_t count = ends[best] - best;
  if (count < rules::kMiddle || !HalfOf(count, std::min(n, spine.size())) || !StandsOut(count, second))
    return std::nullopt;
  const Vote& middle = votes[best + count / 2];
  Candidate c;
  c.shift = static_cast<std::int64_t>(middle.spine) - static_cast<std::int64_t>(middle.own);
  c.seed = middle.own;
  c.pairs = c.agree = c.together = count;
  c.offset_ns = middle.difference_ns;
  c.spread_ns = (votes[ends[best] - 1].difference_ns - votes[best].difference_ns) / 2;
  if (prior.within_ns > 0 && std::llabs(c.offset_ns - prior.offset_ns) > prior.within_ns) return std::nullopt;
  return c;
}

}  // namespace lockstep::merge
