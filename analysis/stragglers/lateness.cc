#include "analysis/stragglers/lateness.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <numeric>

#include "analysis/core/statistics.h"
#include "analysis/rules/stragglers.h"
#include "core/interval.h"
#include "core/rules/common.h"
#include "core/soon_after.h"
#include "merge/parallel.h"
#include "merge/timeline/rank_activity.h"

namespace lockstep::analysis {
LatenessTable Lateness(const Context& context) {
  const auto& t = context.tables().collectives;
  const auto& members = context.tables().collective_ranks;
  const std::size_t n = context.ranks().size(), units = context.units().size();
  LatenessTable late{std::vector(units, std::vector<double>(n, 0.0)),
                     std::vector(units, std::vector<std::int64_t>(n, 0)),
                     std::vector(units, std::vector<std::int64_t>(n, 0))};
  std::vector<std::vector<std::int64_t>> counts(units, std::vector<std::int64_t>(n, 0));
  for (std::size_t c = 0; c < t.rows(); ++c) {
    const bool one = context.WaitsForOne(c);
    if (!one && !context.Comparable(c)) continue;
    const std::size_t unit = context.UnitAt(context.LastAwaited(c));
    if (unit == kNowhere) continue;
    const std::size_t first = context.timeline().FirstMember(c), last = context.timeline().FirstMember(c + 1);
    const std::int64_t median = one ? 0 : context.MedianArrival(c), resolution = ResolutionNs(t.error_ns[c]);
    for (std::size_t m = first; m < last; ++m) {
      const std::size_t p = context.Position(members.rank[m]);
      if (p == kNowhere) continue;
      // When those came that only wait says nothing about them.
      const std::int64_t off = !one                                ? members.arrival_ns[m] - median
                               : members.rank[m] == t.last_rank[c] ? t.charge_ns[c]
                                                                   : 0;
      if (std::llabs(off) > resolution) {
        late.mean_ns[unit][p] += static_cast<double>(off);
        late.behind_ns[unit][p] += std::max<std::int64_t>(off, 0);
      } else {
        late.blurred_ns[unit][p] += std::max<std::int64_t>(off, 0);
      }
      ++counts[unit][p];
    }
  }
  for (std::size_t u = 0; u < units; ++u)
    for (std::size_t p = 0; p < n; ++p)
      if (counts[u][p] > 0) late.mean_ns[u][p] /= static_cast<double>(counts[u][p]);
  return late;
}

Series ByRank(const Series& values) {
  Series series(values.empty() ? 0 : values[0].size(), std::vector<double>(values.size()));
  for (std::size_t u = 0; u < values.size(); ++u)
    for (std::size_t r = 0; r < series.size(); ++r) series[r][u] = values[u][r];
  return series;
}

Series LargeOf(Series series) {
  const auto sum = [](const std::vector<double>& of) { return std::accumulate(of.begin(), of.end(), 0.0); };
  double most = 0;
  for (const std::vector<double>& of : series) most = std::max(most, sum(of));
  std::erase_if(series, [&](const std::vector<double>& of) { return !MuchOf(sum(of), most); });
  return series;
}

namespace {

// Of each step and rank (position); nothing where a rank lacks the step.
std::vector<std::vector<std::int64_t>> WorkBySteps(const Context& context) {
  const auto& cells = context.tables().step_ranks;
  std::vector<std::vector<std::int64_t>> work(context.units().size());
  for (std::size_t u = 0; u < work.size(); ++u)
    for (std::size_t p = 0; p < context.ranks().size(); ++p) {
      const std::size_t cell = context.Cell(context.units()[u].step, p);
      if (cell == kNowhere) {
        work[u].clear();
        break;
      }
      work[u].push_back(cells.compute_ns[cell] + cells.blocked_ns[cell] + cells.input_ns[cell]);
    }
  return work;
}

using Work = std::vector<std::vector<std::int64_t>>;  // [piece][rank]

// When a rank came to its operations, cluster time.
std::vector<std::int64_t> OperationsOf(const schema::RankTables& tables, const merge::ClockMap& clock) {
  std::vector<std::int64_t> begins = tables.collectives.begin_ns;
  begins.insert(begins.end(), tables.p2p.begin_ns.begin(), tables.p2p.begin_ns.end());
  std::sort(begins.begin(), begins.end());
  for (std::int64_t& ns : begins) ns = clock.ToCluster(ns);
  return begins;
}

// The same without steps: what is in no call, in pieces that end with the same part of each rank's operations and are
// equally long on the rank that works longest; where one rank has many more operations than another (it hands out work,
// say), in pieces of time.
Work WorkByPieces(const Context& context) {
  const auto& totals = context.tables().rank_totals;
  const std::size_t n = context.ranks().size();
  std::int64_t begin_ns = INT64_MIN, end_ns = INT64_MAX;
  for (std::size_t i = 0; i < totals.rows(); ++i) {
    const merge::ClockMap clock(context.tables().clock, totals.rank[i]);
    begin_ns = std::max(begin_ns, clock.ToCluster(totals.begin_ns[i]));
    end_ns = std::min(end_ns, clock.ToCluster(totals.end_ns[i]));
  }
  if (totals.rows() < n || end_ns <= begin_ns) return {};
  const auto of_all = [&](std::size_t row) { return totals.compute_ns[row] + totals.blocked_ns[row]; };
  // One that hands out work and waits has a task of its own.
  if (n == 2 && LittleOf(std::min(of_all(0), of_all(1)), std::max(of_all(0), of_all(1)))) return {};
  std::vector<IntervalSet> exposed(n);
  std::vector<std::vector<std::int64_t>> operations(n);
  std::atomic<bool> read = true;
  merge::ParallelFor(context.options().jobs, n, [&](std::size_t p) {
    const Result<schema::RankTables> tables = context.ReadActivity(context.ranks()[p]);
    if (!tables.ok()) {
      read = false;
      return;
    }
    const merge::ClockMap clock(context.tables().clock, context.ranks()[p]);
    exposed[p] = ActivityOf(tables.value(), clock).exposed;
    operations[p] = OperationsOf(tables.value(), clock);
  });
  if (!read) return {};
  const auto fewer = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  const auto [fewest, most] = std::minmax_element(operations.begin(), operations.end(), fewer);
  const bool alike = !fewest->empty() && MuchOf(fewest->size(), most->size());
  const std::size_t pieces =
      alike ? std::clamp<std::size_t>(fewest->size() / 2, 1, rules::kWorkPieces) : rules::kWorkPieces;
  const auto work_of = [&](std::size_t p) { return end_ns - begin_ns - TotalWithin(exposed[p], {begin_ns, end_ns}); };
  std::size_t longest = 0;
  for (std::size_t p = 1; p < n; ++p)
    if (work_of(p) > work_of(longest)) longest = p;
  Work work(pieces, std::vector<std::int64_t>(n, 0));
  std::vector<std::int64_t> from(n, begin_ns);
  for (std::size_t u = 0; u < pieces; ++u) {
    const std::int64_t until =
        begin_ns + (end_ns - begin_ns) / static_cast<std::int64_t>(pieces) * static_cast<std::int64_t>(u + 1);
    const std::vector<std::int64_t>& of = operations[longest];
    const auto passed = static_cast<std::size_t>(std::upper_bound(of.begin(), of.end(), until) - of.begin());
    for (std::size_t p = 0; p < n; ++p) {
      const std::vector<std::int64_t>& own = operations[p];
      const std::size_t at = alike ? passed * own.size() / of.size() : 0;
      const std::int64_t to = !alike ? until : at == 0 ? begin_ns : std::max(from[p], own[at - 1]);
      work[u][p] = to - from[p] - TotalWithin(exposed[p], {from[p], to});
      from[p] = to;
    }
  }
  // Where nobody works, in MPI_Init say, nothing is compared.
  std::erase_if(work, [&](const std::vector<std::int64_t>& of_ranks) {
    return static_cast<double>(*std::max_element(of_ranks.begin(), of_ranks.end())) <
           rules::kWorthShare * static_cast<double>(end_ns - begin_ns) / static_cast<double>(pieces);
  });
  return work;
}

}  // namespace

std::int64_t WaitAtTheEnd(const Context& context) {
  const auto& t = context.tables().collectives;
  const auto& totals = context.tables().rank_totals;
  std::int64_t longest_ns = 0;
  for (std::size_t i = 0; i < totals.rows(); ++i)
    longest_ns = std::max(longest_ns, totals.end_ns[i] - totals.begin_ns[i]);
  for (std::size_t c = 0; c < t.rows(); ++c)
    if (t.kind[c] == schema::Code(CollectiveKind::kFinalize) && t.wait_ns[c] > 0 &&
        static_cast<double>(t.wait_ns[c]) >= rules::kNameShare * static_cast<double>(longest_ns))
      return t.wait_ns[c];
  return 0;
}

bool WaitsUnseen(const Context& context, const Analysis& analysis) {
  const IdentityTerms& terms = analysis.summary.terms;
  if (analysis.run.gpu_ranks > 0 ||
      static_cast<double>(terms.exposed_unsplit_ns) < rules::kNameShare * static_cast<double>(terms.Sum()))
    return false;
  const auto& t = context.tables().collectives;
  const auto& members = context.tables().collective_ranks;
  SoonAfter seen;
  for (std::size_t c = 0; c < t.rows(); ++c) {
    if (t.mode[c] == schema::Code(CollectiveMode::kBlocking) || t.seen[c] < t.expected[c]) continue;
    // The earliest end of what was posted is the begin of its wait.
    const std::size_t first = context.timeline().FirstMember(c), last = context.timeline().FirstMember(c + 1);
    std::int64_t came_ns = INT64_MIN;
    for (std::size_t m = first; m < last; ++m) came_ns = std::max(came_ns, members.end_low_ns[m]);
    for (std::size_t m = first; m < last; ++m)
      if (members.end_low_ns[m] < came_ns && came_ns > t.last_arrival_ns[c] && members.end_high_ns[m] > came_ns)
        seen.Add(t.last_arrival_ns[c], came_ns, members.end_high_ns[m]);
  }
  return seen.Holds();
}

LatenessTable WorkBeyond(const Context& context) {
  const std::size_t n = context.ranks().size();
  const std::vector<std::vector<std::int64_t>> work =
      context.units_are_steps() ? WorkBySteps(context) : WorkByPieces(context);
  LatenessTable beyond{std::vector(work.size(), std::vector<double>(n, 0.0)),
                       std::vector(work.size(), std::vector<std::int64_t>(n, 0)),
                       std::vector(work.size(), std::vector<std::int64_t>(n, 0))};
  for (std::size_t u = 0; u < work.size(); ++u) {
    const std::int64_t median = LowerMedian(work[u]);
    beyond.middle_ns.push_back(median);
    for (std::size_t p = 0; p < work[u].size(); ++p) {
      beyond.mean_ns[u][p] = static_cast<double>(work[u][p] - median);
      beyond.behind_ns[u][p] = std::max<std::int64_t>(0, work[u][p] - median);
    }
  }
  return beyond;
}

Suspects::Suspects(const Context& context, const std::vector<std::size_t>& positions)
    : contains_(context.ranks().size(), false) {
  const auto& t = context.tables().collectives;
  const auto& members = context.tables().collective_ranks;
  for (const std::size_t position : positions) contains_[position] = true;
  first_.reserve(t.rows() + 1);
  others_ns_.reserve(t.rows());
  for (std::size_t c = 0; c < t.rows(); ++c) {
    first_.push_back(late_.size());
    std::int64_t others = INT64_MIN;
    const std::size_t first = context.timeline().FirstMember(c), last = context.timeline().FirstMember(c + 1);
    if (!positions.empty() && context.WaitsForOne(c)) {
      const std::size_t p = context.Position(t.last_rank[c]);
      if (p != kNowhere && contains_[p]) {
        others = context.LastAwaited(c) - t.charge_ns[c];
        late_.push_back({p, context.LastAwaited(c)});
      }
    } else if (!positions.empty() && context.Comparable(c)) {
      const auto suspect = [&](std::size_t m) {
        const std::size_t p = context.Position(members.rank[m]);
        return p != kNowhere && contains_[p];
      };
      for (std::size_t m = first; m < last; ++m)
        if (!suspect(m)) others = std::max(others, members.arrival_ns[m]);
      // Only suspects are members: it is unknown when the others would have arrived, so the last one is charged as
      // usual.
      const bool among_themselves = others == INT64_MIN;
      if (among_themselves) others = t.last_arrival_ns[c] - t.charge_ns[c];
      for (std::size_t m = first; m < last; ++m) {
        const std::int64_t arrival = members.arrival_ns[m];
        if (arrival <= others || !suspect(m)) continue;
        const bool sure =
            members.rank[m] == t.last_rank[c] || (!among_themselves && arrival - others > ResolutionNs(t.error_ns[c]));
        if (sure) late_.push_back({context.Position(members.rank[m]), arrival});
      }
    }
    others_ns_.push_back(others);
  }
  first_.push_back(late_.size());
}

std::vector<std::size_t> WaitingRanks(const Context& context) {
  const std::size_t n = context.ranks().size(), k = std::min(n, rules::kPriceWaitingRanks);
  std::vector<std::size_t> chosen(k);
  for (std::size_t i = 0; i < k; ++i) chosen[i] = i * n / k;
  return chosen;
}

Waits WaitsFor(const Context& context, std::size_t waiting_rank, const Suspects& suspects,
               const ExposedActivity* activity) {
  const auto& t = context.tables().collectives;
  const auto& members = context.tables().collective_ranks;
  const std::size_t n = context.ranks().size();
  const std::int32_t rank = context.ranks()[waiting_rank];
  std::vector<std::vector<Interval>> waits(n);
  std::vector<Interval> transfers, for_suspects, for_others;
  const auto wait = [](std::vector<Interval>& to, std::int64_t begin, std::int64_t end) {
    if (end > begin) to.push_back({begin, end});
  };
  for (std::size_t c = 0; c < t.rows(); ++c) {
    const bool one = context.WaitsForOne(c);
    if (!one && !context.Comparable(c)) continue;
    const std::size_t m = context.MemberRow(c, rank);
    if (m == kNowhere || (one && members.wait_ns[m] <= 0)) continue;
    const std::int64_t here = members.arrival_ns[m], end = members.end_high_ns[m], last_ns = context.LastAwaited(c);
    const std::int64_t came = std::min(last_ns, end);
    if (!members.censored[m] && members.transfer_ns[m] >= 0 && end > came) transfers.push_back({came, end});
    if (const auto late = suspects.Late(c); !late.empty()) {
      const std::int64_t begin = std::max(suspects.OthersArrival(c), here);
      wait(for_others, here, std::min(begin, end));
      std::int64_t last_of_them = INT64_MIN;
      for (const Suspects::Arrival& each : late) {
        if (each.position == waiting_rank) continue;
        wait(waits[each.position], begin, std::min(each.arrival_ns, end));
        last_of_them = std::max(last_of_them, each.arrival_ns);
      }
      wait(for_suspects, begin, std::min(last_of_them, end));
      continue;
    }
    wait(for_others, here, came);
    if (t.last_rank[c] < 0 || t.last_rank[c] == rank) continue;
    if (const std::size_t culprit = context.Position(t.last_rank[c]); culprit != kNowhere)
      wait(waits[culprit], std::max(last_ns - t.charge_ns[c], here), came);
  }
  const IntervalSet transferring = Normalize(std::move(transfers));
  // Of several operations in flight one may wait for a suspect and another for another rank: that time is not charged
  // to the suspect.
  const IntervalSet not_for_suspects = Unite(transferring, Normalize(std::move(for_others)));
  const std::vector<Unit>& units = context.units();
  const auto per_unit = [&](std::vector<Interval> stretches, const IntervalSet& without) {
    std::vector<std::int64_t> by;
    if (stretches.empty()) return by;
    IntervalSet set = Subtract(Normalize(std::move(stretches)), without);
    if (activity != nullptr) set = Intersect(set, activity->exposed);
    by.assign(units.size(), 0);
    for (std::size_t u = 0; u < units.size(); ++u) {
      std::int64_t ns = TotalWithin(set, units[u].window);
      if (activity == nullptr && units[u].step != kNowhere)
        if (const std::size_t cell = context.Cell(units[u].step, waiting_rank); cell != kNowhere)
          ns = std::min(ns, context.tables().step_ranks.exposed_wait_ns[cell]);
      by[u] = ns;
    }
    return by;
  };
  Waits result;
  for (std::size_t p = 0; p < n; ++p)
    result.by.push_back(per_unit(std::move(waits[p]), suspects.Contains(p) ? not_for_suspects : transferring));
  result.suspects = per_unit(std::move(for_suspects), not_for_suspects);
  return result;
}

}  // namespace lockstep::analysis
