// Where in its program a late rank is late, and in which units, for --explain.

#include <algorithm>
#include <numeric>

#include "analysis/core/statistics.h"
#include "analysis/rules/stragglers.h"
#include "analysis/stacks/blocked_places.h"
#include "analysis/stragglers/stack_evidence.h"
#include "analysis/stragglers/straggler_cause.h"
#include "core/rules/common.h"
#include "merge/timeline/totals_row.h"

namespace lockstep::analysis {
namespace {

// When these units were on the rank, by its own clock; of a run without steps all that was recorded.
std::vector<Interval> WindowsOf(const Context& context, std::size_t position, const std::vector<std::size_t>& units) {
  const auto& cells = context.tables().step_ranks;
  const auto& totals = context.tables().rank_totals;
  std::vector<Interval> windows;
  if (context.units_are_steps()) {
    for (const std::size_t u : units)
      if (const std::size_t cell = context.Cell(context.units()[u].step, position); cell != kNowhere)
        windows.push_back({cells.begin_ns[cell], cells.end_ns[cell]});
    return windows;
  }
  if (const std::size_t row = merge::TotalsRow(totals, context.ranks()[position]); row < totals.rows())
    windows.push_back({totals.begin_ns[row], totals.end_ns[row]});
  return windows;
}

std::optional<BlockedSums> SumsOf(const Context& context, std::size_t position, const std::vector<std::size_t>& units) {
  const Result<schema::RankTables> tables = context.ReadRank(context.ranks()[position]);
  if (!tables.ok()) return std::nullopt;
  return BlockedWithin(tables.value(), WindowsOf(context, position, units));
}

std::int64_t MeanAt(const BlockedSums& sums, const BlockedPlace& place) {
  const auto at = sums.find(place);
  return at == sums.end() || at->second.ns.empty()
             ? 0
             : at->second.Total() / static_cast<std::int64_t>(at->second.ns.size());
}

// In these units: what the rank is blocked in for longer than `others` (positions) are, by the recorded calls; nothing
// where that is less than a part of `of_ns` in each of them.
std::optional<BlockedAt> FindLateBlocked(const Context& context, std::size_t position,
                                         const std::vector<std::size_t>& others, const std::vector<std::size_t>& units,
                                         std::int64_t of_ns) {
  const std::optional<BlockedSums> own = SumsOf(context, position, units);
  if (!own || own->empty()) return std::nullopt;
  std::vector<BlockedSums> theirs;
  for (const std::size_t other : others)
    if (theirs.size() < rules::kLateRanksCompared)
      if (std::optional<BlockedSums> sums = SumsOf(context, other, units)) theirs.push_back(std::move(*sums));
  std::optional<BlockedAt> most;
  std::int64_t most_ns = 0;
  for (const auto& [place, sum] : *own) {
    std::vector<std::int64_t> of_others;
    for (const BlockedSums& sums : theirs) of_others.push_back(MeanAt(sums, place));
    const std::int64_t others_ns = of_others.empty() ? 0 : LowerMedian(std::move(of_others));
    const std::int64_t more_ns = MeanAt(*own, place) - others_ns;
    if (more_ns <= most_ns || !MuchOf(more_ns, of_ns)) continue;
    most_ns = more_ns;
    most = Described(place, sum);
    most->others_ns_per_step = others_ns;
  }
  return most;
}

std::optional<BlockedAt> BlockedPlaceOf(const Context& context, std::size_t position, const RankActivities& read,
                                        const StragglerCause& cause) {
  const bool blocked = cause.more_blocked_ns.value_or(0) > 0;
  // A GPU's rank has no such term: nothing says how long it is blocked but the calls themselves.
  const bool of_calls = cause.id == CauseId::kHost;
  if (!of_calls && !(blocked && (cause.id == CauseId::kWaiting || cause.id == CauseId::kPeriodic))) return std::nullopt;
  std::vector<std::size_t> others;
  for (const std::size_t p : read.positions)
    if (p != position) others.push_back(p);
  // A quarter of twice the price: of a rank without a blocked time the call explains half of the price.
  return FindLateBlocked(context, position, others, cause.units,
                         of_calls ? 2 * cause.price_ns : *cause.more_blocked_ns);
}

Evidence WorkOfRanks(const Context& context) {
  const auto& totals = context.tables().rank_totals;
  Evidence rows{{"rank", "compute_ns", "blocked_ns", "span_ns"}, {}};
  for (std::size_t i = 0; i < totals.rows(); ++i)
    rows.rows.push_back({totals.rank[i], totals.compute_ns[i], totals.blocked_ns[i], SpanOf(totals, i)});
  std::stable_sort(rows.rows.begin(), rows.rows.end(),
                   [](const auto& a, const auto& b) { return a[1] + a[2] > b[1] + b[2]; });
  return rows;
}

}  // namespace

void FindPlaces(const Context& context, std::size_t position, const RankActivities& read, double late_share,
                StragglerCause& cause, Straggler& straggler) {
  cause.stack = straggler.stack = FindPlace(context, straggler.rank, cause.id, late_share);
  cause.blocked = BlockedPlaceOf(context, position, read, cause);
  if (!cause.blocked) return;
  cause.blocked->every = cause.period;
  straggler.blocked = cause.blocked;
}

Evidence RowsFor(const Context& context, const std::vector<std::int64_t>& price, const LatenessTable& late,
                 std::size_t r, bool by_work) {
  if (by_work && !context.units_are_steps()) return WorkOfRanks(context);
  Evidence rows{{context.units_are_steps() ? "step" : "slice", "length_ns", "others_wait_ns",
                 by_work ? "works_longer_ns" : "arrives_late_ns"},
                {}};
  std::vector<std::size_t> order(price.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return price[a] > price[b]; });
  order.resize(std::min(order.size(), rules::kLateUnitsListed));
  for (const std::size_t u : order) {
    const Unit& unit = context.units()[u];
    const bool is_step = unit.step != kNowhere;
    rows.rows.push_back({is_step ? context.tables().steps.index[unit.step] : static_cast<std::int64_t>(u),
                         is_step ? context.tables().steps.step_ns[unit.step] : unit.length_ns(), price[u],
                         static_cast<std::int64_t>(late.mean_ns[u][r])});
  }
  return rows;
}

}  // namespace lockstep::analysis
