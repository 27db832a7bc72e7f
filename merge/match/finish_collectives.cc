// What only the members' breakdowns tell about an instance: its end, transfer, wait,
// and whether its times are possible.

#include <algorithm>

#include "core/order_statistics.h"
#include "merge/match/collectives.h"
#include "merge/match/saturated.h"
#include "merge/parallel.h"

namespace lockstep::merge {
namespace {

constexpr std::int64_t kNoTime = schema::kNoTime;

// Lower median, -1 for none; reorders the values.
std::int64_t MedianOrNone(std::vector<std::int64_t>& values) {
  return values.empty() ? -1 : NthElement(values, (values.size() - 1) / 2);
}

}  // namespace

CollectiveChecks FinishCollectives(MatchedCollectives& matched, unsigned jobs) {
  schema::TlCollectives& c = matched.collectives;
  const schema::TlCollectiveRanks& members = matched.members;
  const std::size_t n = c.rows();
  std::vector<std::int64_t> exit_skew(n, -1);
  ParallelChunks(jobs, n, 4096, [&](std::size_t begin, std::size_t end) {
    std::vector<std::int64_t> waits, transfers;
    for (std::size_t i = begin; i < end; ++i) {
      waits.clear(), transfers.clear();
      bool censored = false, violation = false;
      std::int64_t last_end = kNoTime, first_end = kForever, latest = kNoTime;
      for (std::size_t m = matched.first_member[i]; m < matched.first_member[i + 1]; ++m) {
        last_end = std::max(last_end, members.end_high_ns[m]);
        first_end = std::min(first_end, members.end_high_ns[m]);
        censored |= members.censored[m] != 0;
        if (members.wait_ns[m] >= 0) waits.push_back(members.wait_ns[m]);
        if (members.transfer_ns[m] >= 0) transfers.push_back(members.transfer_ns[m]);
        if (members.arrival_ns[m] > latest) {
          latest = members.arrival_ns[m];
          c.step[i] = members.step[m];
        }
        if (matched.limit_ns[m] == kNoTime || matched.endless[m] || matched.limit_ns[m] <= members.end_high_ns[m])
          continue;
        // The arrival that this member cannot have left before, and its clock's error.
        std::int64_t error = 0;
        for (std::size_t k = matched.first_member[i]; k < matched.first_member[i + 1]; ++k)
          if (members.arrival_ns[k] == matched.limit_ns[m]) error = std::max(error, matched.error_ns[k]);
        violation |= matched.limit_ns[m] - members.end_high_ns[m] > Sum(error, matched.error_ns[m]);
      }
      if (!matched.whole[i] && !waits.empty()) censored = true, transfers.clear(), waits.clear();
      c.end_ns[i] = last_end;
      c.censored[i] = censored;
      c.violation[i] = violation;
      c.wait_ns[i] = MedianOrNone(waits);
      c.transfer_ns[i] = MedianOrNone(transfers);
      if (c.splits[i] && matched.whole[i] && !censored && c.expected[i] > 1) exit_skew[i] = last_end - first_end;
    }
  });

  CollectiveChecks checks;
  std::vector<std::int64_t> skews;
  for (std::size_t i = 0; i < n; ++i) {
    checks.violations += c.violation[i];
    if (exit_skew[i] >= 0) skews.push_back(exit_skew[i]);
  }
  const std::int64_t median_skew = std::max<std::int64_t>(MedianOrNone(skews), 0);
  for (std::size_t i = 0; i < n; ++i) {
    if (exit_skew[i] < 0 || c.transfer_ns[i] < 0) continue;
    // error_ns is the sum of the two largest errors: at least 2u of any pair.
    const std::int64_t floor = std::max(c.error_ns[i], median_skew);
    std::int64_t shortest = kForever;
    for (std::size_t m = matched.first_member[i]; m < matched.first_member[i + 1]; ++m)
      shortest = std::min(shortest, members.end_high_ns[m] - members.arrival_ns[m]);
    if (floor > kForever / 10 || shortest <= 10 * floor) continue;
    ++checks.free_checked;
    const std::int64_t difference =
        c.transfer_ns[i] > shortest ? c.transfer_ns[i] - shortest : shortest - c.transfer_ns[i];
    checks.free_disagreed += difference > Sum(c.error_ns[i], shortest / 20);
  }
  return checks;
}

}  // namespace lockstep::merge
