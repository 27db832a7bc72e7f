// Facts about an instance that follow from its members' breakdowns: its end, transfer, wait, and whether its times are
// possible.

#include <algorithm>

#include "core/order_statistics.h"
#include "core/rules/common.h"
#include "merge/match/collectives.h"
#include "merge/parallel.h"
#include "merge/rules/match.h"
#include "merge/saturated.h"
#include "merge/timeline/step_length.h"

namespace lockstep::merge {
namespace {

using schema::kNoTime;

// -1 for none.
std::int64_t MedianOrUnknown(std::vector<std::int64_t>& values) { return values.empty() ? -1 : LowerMedian(values); }

// Fills one instance from its members. Returns how far apart they left, -1 if that is not known.
std::int64_t FinishOne(MatchedCollectives& matched, std::size_t i, std::vector<std::int64_t>& waits,
                       std::vector<std::int64_t>& transfers) {
  schema::TlCollectives& c = matched.collectives;
  const schema::TlCollectiveRanks& members = matched.members;
  const std::size_t first = matched.first_member[i], end = matched.first_member[i + 1];
  waits.clear(), transfers.clear();
  bool censored = false, violation = false;
  std::int64_t last_end = kNoTime, first_end = kForever, latest = kNoTime;
  for (std::size_t m = first; m < end; ++m) {
    last_end = std::max(last_end, members.end_high_ns[m]);
    first_end = std::min(first_end, members.end_high_ns[m]);
    censored |= members.censored[m] != 0;
    if (members.wait_ns[m] >= 0) waits.push_back(members.wait_ns[m]);
    if (members.transfer_ns[m] >= 0) transfers.push_back(members.transfer_ns[m]);
    if (members.arrival_ns[m] > latest) {
      latest = members.arrival_ns[m];
      c.step[i] = members.step[m];
    }
    const std::int64_t limit = matched.limit_ns[m];
    if (limit == kNoTime || matched.endless[m] || limit <= members.end_high_ns[m]) continue;
    // The arrival before which this member cannot have left, and its clock's error.
    std::int64_t error = 0;
    for (std::size_t k = first; k < end; ++k)
      if (members.arrival_ns[k] == limit) error = std::max(error, matched.error_ns[k]);
    violation |= limit - members.end_high_ns[m] > Sum(error, matched.error_ns[m]);
  }
  if (!matched.whole[i] && !waits.empty()) censored = true, transfers.clear(), waits.clear();
  c.end_ns[i] = last_end;
  c.censored[i] = censored;
  c.violation[i] = violation;
  // The mean: if one of two ranks waits, the lower median would be 0.
  c.wait_ns[i] = MeanLength(waits);
  c.transfer_ns[i] = MedianOrUnknown(transfers);
  return c.splits[i] && matched.whole[i] && !censored && c.expected[i] > 1 ? last_end - first_end : -1;
}

// A check that needs no clocks: the transfer equals the shortest stay of a member, where that is long compared with how
// far apart members leave.
void CheckWithoutClocks(const MatchedCollectives& matched, const std::vector<std::int64_t>& exit_skew,
                        CollectiveChecks& checks) {
  const schema::TlCollectives& c = matched.collectives;
  const schema::TlCollectiveRanks& members = matched.members;
  std::vector<std::int64_t> skews;
  for (const std::int64_t skew : exit_skew)
    if (skew >= 0) skews.push_back(skew);
  const std::int64_t median_skew = std::max<std::int64_t>(MedianOrUnknown(skews), 0);
  for (std::size_t i = 0; i < c.rows(); ++i) {
    if (exit_skew[i] < 0 || c.transfer_ns[i] < 0) continue;
    // error_ns is the sum of the two largest errors: at least 2u of any pair.
    const std::int64_t floor = std::max(c.error_ns[i], median_skew);
    std::int64_t shortest = kForever;
    for (std::size_t m = matched.first_member[i]; m < matched.first_member[i + 1]; ++m)
      shortest = std::min(shortest, members.end_high_ns[m] - members.arrival_ns[m]);
    if (!LittleOf(floor, shortest)) continue;
    ++checks.free_checked;
    const std::int64_t difference =
        c.transfer_ns[i] > shortest ? c.transfer_ns[i] - shortest : shortest - c.transfer_ns[i];
    const auto unchanged = static_cast<std::int64_t>(rules::kChangedShare * static_cast<double>(shortest));
    checks.free_disagreed += difference > Sum(c.error_ns[i], unchanged);
  }
}

}  // namespace

CollectiveChecks FinishCollectives(MatchedCollectives& matched, unsigned jobs) {
  const std::size_t n = matched.collectives.rows();
  std::vector<std::int64_t> exit_skew(n, -1);
  ParallelChunks(jobs, n, rules::kInstancesPerTask, [&](std::size_t begin, std::size_t end) {
    std::vector<std::int64_t> waits, transfers;
    for (std::size_t i = begin; i < end; ++i) exit_skew[i] = FinishOne(matched, i, waits, transfers);
  });
  CollectiveChecks checks;
  for (const std::uint8_t violation : matched.collectives.violation) checks.violations += violation;
  CheckWithoutClocks(matched, exit_skew, checks);
  return checks;
}

}  // namespace lockstep::merge
