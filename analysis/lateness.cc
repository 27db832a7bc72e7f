#include "analysis/lateness.h"

#include <algorithm>
#include <cstdlib>

#include "analysis/statistics.h"
#include "core/interval.h"

namespace lockstep {
namespace {

constexpr std::size_t kMaxWitnesses = 33;

}  // namespace

std::vector<std::vector<double>> Lateness(const Context& context) {
  const auto& t = context.tables().collectives;
  const auto& members = context.tables().collective_ranks;
  const std::size_t n = context.ranks().size(), units = context.units().size();
  std::vector<std::vector<double>> late(units, std::vector<double>(n, 0.0));
  std::vector<std::vector<std::int64_t>> counts(units, std::vector<std::int64_t>(n, 0));
  for (std::size_t c = 0; c < t.rows(); ++c) {
    if (!context.Comparable(c)) continue;
    const std::size_t unit = context.UnitAt(t.last_arrival_ns[c]);
    if (unit == kNowhere) continue;
    const std::size_t first = context.timeline().FirstMember(c), last = context.timeline().FirstMember(c + 1);
    const std::int64_t median = context.MedianArrival(c);
    for (std::size_t m = first; m < last; ++m) {
      const std::size_t p = context.Position(members.rank[m]);
      if (p == kNowhere) continue;
      const std::int64_t off = members.arrival_ns[m] - median;
      if (std::llabs(off) > t.error_ns[c]) late[unit][p] += static_cast<double>(off);
      ++counts[unit][p];
    }
  }
  for (std::size_t u = 0; u < units; ++u)
    for (std::size_t p = 0; p < n; ++p)
      if (counts[u][p] > 0) late[u][p] /= static_cast<double>(counts[u][p]);
  return late;
}

std::vector<std::size_t> Witnesses(const Context& context) {
  const std::size_t n = context.ranks().size(), k = std::min(n, kMaxWitnesses);
  std::vector<std::size_t> chosen(k);
  for (std::size_t i = 0; i < k; ++i) chosen[i] = i * n / k;
  return chosen;
}

std::vector<std::vector<std::int64_t>> WaitsFor(const Context& context, std::size_t witness,
                                                const ExposedActivity* activity) {
  const auto& t = context.tables().collectives;
  const auto& members = context.tables().collective_ranks;
  const std::size_t n = context.ranks().size();
  const std::int32_t rank = context.ranks()[witness];
  std::vector<std::vector<Interval>> waits(n);
  std::vector<Interval> transfers;
  for (std::size_t c = 0; c < t.rows(); ++c) {
    if (!context.Comparable(c)) continue;
    const auto first = members.rank.begin() + static_cast<std::ptrdiff_t>(context.timeline().FirstMember(c));
    const auto last = members.rank.begin() + static_cast<std::ptrdiff_t>(context.timeline().FirstMember(c + 1));
    const auto at = std::lower_bound(first, last, rank);
    if (at == last || *at != rank) continue;
    const auto m = static_cast<std::size_t>(at - members.rank.begin());
    const std::int64_t end = members.end_high_ns[m], came = std::min(t.last_arrival_ns[c], end);
    if (!members.censored[m] && members.transfer_ns[m] >= 0 && end > came) transfers.push_back({came, end});
    if (t.last_rank[c] < 0 || t.last_rank[c] == rank) continue;
    const std::size_t culprit = context.Position(t.last_rank[c]);
    if (culprit == kNowhere) continue;
    const Interval wait{std::max(t.last_arrival_ns[c] - t.charge_ns[c], members.arrival_ns[m]), came};
    if (wait.end > wait.begin) waits[culprit].push_back(wait);
  }
  const IntervalSet transferring = Normalize(std::move(transfers));
  const std::vector<Unit>& units = context.units();
  std::vector<std::vector<std::int64_t>> by(n);
  for (std::size_t culprit = 0; culprit < n; ++culprit) {
    if (waits[culprit].empty()) continue;
    IntervalSet set = Subtract(Normalize(std::move(waits[culprit])), transferring);
    if (activity != nullptr) set = Intersect(set, activity->exposed);
    by[culprit].assign(units.size(), 0);
    for (std::size_t u = 0; u < units.size(); ++u) {
      std::int64_t ns = TotalWithin(set, units[u].window);
      if (units[u].step != kNowhere)
        if (const std::size_t cell = context.Cell(units[u].step, witness); cell != kNowhere)
          ns = std::min(ns, context.tables().step_ranks.exposed_wait_ns[cell]);
      by[culprit][u] = ns;
    }
  }
  return by;
}

}  // namespace lockstep
