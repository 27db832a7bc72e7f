// Finds steps that recur every so many steps, or every so many seconds, and are slow on the host (logging, checkpoints,
// garbage collection), what they cost on average, and the range in which the time is spent, if there is one.

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <span>

#include "analysis/core/compilation.h"
#include "analysis/core/statistics.h"
#include "analysis/core/step_names.h"
#include "analysis/passes.h"
#include "analysis/rules/run.h"
#include "analysis/rules/stragglers.h"
#include "analysis/stacks/blocked_places.h"
#include "core/printed.h"
#include "core/rules/common.h"
#include "trace/file/strings.h"

namespace lockstep::analysis {
namespace {

struct Period {
  std::int64_t steps = 0, ns = 0;  // The length of one period.
  std::size_t fitting = 0, distances = 0;
};

// Steps in a row that are longer for one reason: what a rank does at the end of its step also lengthens the next step
// of the ranks that wait for it, and a step's length is the mean over ranks.
struct Burst {
  std::size_t first = 0, last = 0;  // Indices of Series::rows.
  std::int64_t excess_ns = 0;       // Of all of them together.
  // A rank's own part may lie in the step before, where its others do not wait for it yet.
  std::size_t Begin() const { return first == 0 ? 0 : first - 1; }
};

struct SlowSeries {
  std::vector<std::size_t> rows;  // Rows of tables.steps.
  std::vector<std::int64_t> ns;   // Each step's length.
  std::int64_t ordinary_ns = 0;   // The median of the others.
  std::vector<Burst> bursts;
  std::vector<bool> burst;  // By index of `rows`: from Begin() to `last` of one.

  void Keep(std::vector<Burst> kept) {
    bursts = std::move(kept);
    burst.assign(rows.size(), false);
    for (const Burst& one : bursts)
      std::fill_n(burst.begin() + static_cast<std::ptrdiff_t>(one.Begin()), one.last + 1 - one.Begin(), true);
  }
  std::int64_t MedianExcess() const {
    std::vector<std::int64_t> excess;
    for (const Burst& one : bursts) excess.push_back(one.excess_ns);
    return LowerMedian(std::move(excess));
  }
};

std::optional<SlowSeries> FindSlowSteps(const Context& context, double least_deviations) {
  const auto& steps = context.tables().steps;
  SlowSeries series;
  for (const std::size_t row : context.usable_steps()) {
    series.rows.push_back(row);
    series.ns.push_back(steps.step_ns[row]);
  }
  const std::size_t n = series.ns.size();
  if (n < rules::kRecurs) return std::nullopt;
  series.ordinary_ns = LowerMedian(series.ns);
  std::vector<std::int64_t> deviations;
  for (const std::int64_t ns : series.ns) deviations.push_back(std::abs(ns - series.ordinary_ns));
  const double scatter = rules::kMadToSigma * static_cast<double>(LowerMedian(std::move(deviations)));
  const double limit =
      static_cast<double>(series.ordinary_ns) +
      std::max(rules::kChangedShare * static_cast<double>(series.ordinary_ns), least_deviations * scatter);
  std::vector<std::int64_t> largest = series.ns;
  std::nth_element(largest.begin(), largest.begin() + (rules::kRecurs - 1), largest.end(), std::greater<>());
  const auto ordinary = static_cast<double>(series.ordinary_ns);
  const double least =
      std::max(limit, ordinary + rules::kHalf * (static_cast<double>(largest[rules::kRecurs - 1]) - ordinary));
  const auto is_slow = [&](std::size_t i) { return static_cast<double>(series.ns[i]) > limit; };
  std::size_t slow = 0;
  std::vector<Burst> bursts;
  for (std::size_t i = 0; i < n;) {
    Burst burst{i, i, 0};
    bool alike = false;
    while (i < n && is_slow(i)) {
      burst.excess_ns += series.ns[i] - series.ordinary_ns;
      alike |= static_cast<double>(series.ns[i]) > least;
      burst.last = i++;
    }
    if (alike) {
      bursts.push_back(burst);
      slow += i - burst.first;
    }
    i = std::max(i, burst.first + 1);
  }
  series.Keep(std::move(bursts));
  if (series.bursts.size() < rules::kRecurs || slow * rules::kBurstStepsPerSlow > n) return std::nullopt;
  return series;
}

// `at`: the step of each burst, as an index of Series::rows.
std::optional<Period> FindPeriod(const Context& context, const SlowSeries& series, const std::vector<std::size_t>& at) {
  if (at.size() < rules::kRecurs) return std::nullopt;
  const auto& steps = context.tables().steps;
  std::vector<std::int64_t> in_steps, in_time;
  for (std::size_t i = 1; i < at.size(); ++i) {
    const std::size_t a = series.rows[at[i - 1]], b = series.rows[at[i]];
    in_steps.push_back(steps.index[b] - steps.index[a]);
    in_time.push_back(steps.begin_ns[b] - steps.begin_ns[a]);
  }
  Period period;
  period.distances = in_steps.size();
  period.steps = LowerMedian(in_steps);
  period.fitting = static_cast<std::size_t>(std::count(in_steps.begin(), in_steps.end(), period.steps));
  const auto enough = [&] {
    return static_cast<double>(period.fitting) >= rules::kThroughout * static_cast<double>(period.distances);
  };
  if (period.steps > 1 && enough()) return period;
  if (at.size() < rules::kFewest) return std::nullopt;
  period.steps = 0;
  period.ns = LowerMedian(in_time);
  // The time of a burst is only known to the step that contains it.
  const double tolerance = std::max(rules::kBurstTimeTolerance * static_cast<double>(period.ns),
                                    1.0 * static_cast<double>(series.ordinary_ns));
  if (MuchOf(series.ordinary_ns, period.ns)) return std::nullopt;
  period.fitting = static_cast<std::size_t>(std::count_if(in_time.begin(), in_time.end(), [&](std::int64_t ns) {
    return std::abs(static_cast<double>(ns - period.ns)) <= tolerance;
  }));
  if (!enough()) return std::nullopt;
  return period;
}

// How much longer a rank's own part of the burst steps is than that of other steps, per burst; and the same on the host
// alone.
struct HostShare {
  std::size_t position = kNowhere;
  std::int64_t own_ns = 0, host_ns = 0;
};

std::vector<HostShare> SharesOf(const Context& context, const SlowSeries& series) {
  std::vector<HostShare> shares;
  for (std::size_t p = 0; p < context.ranks().size(); ++p) {
    const bool gpu = context.tables().ranks.gpu[context.RankRow(p)];
    // By index of `rows`, where it is known; and of the other steps.
    std::vector<std::optional<HostShare>> parts(series.rows.size());
    std::vector<std::int64_t> own, host;
    for (std::size_t i = 0; i < series.rows.size(); ++i) {
      const std::size_t cell = context.Cell(series.rows[i], p);
      if (cell == kNowhere) continue;
      const IdentityTerms terms = context.TermsOf(cell);
      parts[i] = HostShare{p, terms.Sum() - terms.exposed_wait_ns, gpu ? terms.idle_ns : terms.Own() + terms.idle_ns};
      if (series.burst[i]) continue;
      own.push_back(parts[i]->own_ns);
      host.push_back(parts[i]->host_ns);
    }
    const HostShare ordinary{p, LowerMedian(std::move(own)), LowerMedian(std::move(host))};
    own.clear();
    host.clear();
    for (const Burst& burst : series.bursts) {
      HostShare more{p, 0, 0};
      for (std::size_t i = burst.Begin(); i <= burst.last; ++i)
        if (parts[i]) {
          more.own_ns += parts[i]->own_ns - ordinary.own_ns;
          more.host_ns += parts[i]->host_ns - ordinary.host_ns;
        }
      own.push_back(more.own_ns);
      host.push_back(more.host_ns);
    }
    shares.push_back({p, LowerMedian(std::move(own)), LowerMedian(std::move(host))});
  }
  std::stable_sort(shares.begin(), shares.end(),
                   [](const HostShare& a, const HostShare& b) { return a.own_ns > b.own_ns; });
  return shares;
}

struct NamedBurst {
  std::string name;
  std::uint8_t category = schema::Category::kNone;
  std::int64_t extra_ns = 0;  // Per burst.
  double other_ns = 0;        // Per step that is none.
  // The bursts that contain it, and the step of each in which most of it lies, as an index of Series::rows.
  std::vector<Burst> bursts;
  std::vector<std::size_t> at;
};

// A step of a rank, by its own clock.
struct StepWindow {
  std::int64_t begin, end;
  std::size_t row;  // Index of Series::rows.
};

// Calls visit(range's row, window, time in it) for every range and every window that it meets.
template <typename Visit>
void VisitRanges(const schema::RankTables& t, const std::vector<StepWindow>& windows, const Visit& visit) {
  for (std::uint32_t row = 0; row < t.ranges.rows(); ++row) {
    const std::int64_t begin = t.ranges.begin_ns[row], end = begin + t.ranges.duration_ns[row];
    auto window = std::upper_bound(windows.begin(), windows.end(), begin,
                                   [](std::int64_t at, const StepWindow& w) { return at < w.end; });
    for (; window != windows.end() && window->begin < end; ++window)
      visit(row, *window, std::min(end, window->end) - std::max(begin, window->begin));
  }
}

// Finds the bursts of which the range is a part. Others are slow for another reason, so they say nothing of its period,
// and where two are in a row, the range's own step counts.
void FindItsBursts(const schema::RankTables& t, const std::vector<StepWindow>& windows, std::uint32_t id,
                   const SlowSeries& series, NamedBurst& named) {
  std::vector<std::int64_t> in_step(series.rows.size(), 0);
  VisitRanges(t, windows, [&](std::uint32_t row, const StepWindow& window, std::int64_t ns) {
    if (t.ranges.name[row] == id) in_step[window.row] += ns;
  });
  double extra = 0;
  for (const Burst& burst : series.bursts) {
    const auto begin = in_step.begin() + static_cast<std::ptrdiff_t>(burst.Begin());
    const auto end = in_step.begin() + static_cast<std::ptrdiff_t>(burst.last + 1);
    const std::int64_t in_burst = std::accumulate(begin, end, std::int64_t{0});
    if (!HalfOf(in_burst, named.extra_ns)) continue;
    extra += static_cast<double>(in_burst) - named.other_ns * static_cast<double>(end - begin);
    named.bursts.push_back(burst);
    named.at.push_back(static_cast<std::size_t>(std::max_element(begin, end) - in_step.begin()));
  }
  if (!named.bursts.empty()) named.extra_ns = std::llround(extra / static_cast<double>(named.bursts.size()));
}

// A rank's ranges by name: how much time of the burst steps, and of the other ones, is within them.
struct RangeSum {
  double in_others = 0, in_bursts = 0;
  std::uint8_t category = schema::Category::kNone;
};

class RankRanges {
 public:
  // Empty if the rank's file cannot be read.
  RankRanges(const Context& context, const SlowSeries& series, std::size_t position)
      : bursts_(static_cast<double>(series.bursts.size())),
        burst_steps_(static_cast<double>(std::count(series.burst.begin(), series.burst.end(), true))),
        other_steps_(static_cast<double>(series.rows.size()) - burst_steps_) {
    auto read = context.ReadRank(context.ranks()[position]);
    if (!read.ok()) return;
    tables_ = std::move(read.value());
    std::map<std::int64_t, std::size_t> wanted;
    for (std::size_t i = 0; i < series.rows.size(); ++i) wanted[context.tables().steps.index[series.rows[i]]] = i;
    const auto& steps = tables_.steps;
    for (std::size_t i = 0; i < steps.rows(); ++i)
      if (const auto at = wanted.find(steps.index[i]); at != wanted.end())
        windows_.push_back({steps.begin_ns[i], steps.end_ns[i], at->second});
    std::sort(windows_.begin(), windows_.end(),
              [](const StepWindow& a, const StepWindow& b) { return a.begin < b.begin; });
    VisitRanges(tables_, windows_, [&](std::uint32_t row, const StepWindow& window, std::int64_t ns) {
      RangeSum& sum = sums_[tables_.ranges.name[row]];
      (series.burst[window.row] ? sum.in_bursts : sum.in_others) += static_cast<double>(ns);
      sum.category = tables_.ranges.category[row];
    });
  }

  // The range in which the time is spent: the innermost that contains at least half of it. A compilation encloses what
  // it traces, and says why that takes longer.
  std::optional<NamedBurst> NameIt(const SlowSeries& series, std::int64_t excess) const {
    std::optional<NamedBurst> best;
    std::uint32_t best_id = 0;
    double best_length = 0;
    for (const auto& [id, sum] : sums_) {
      const double extra = ExtraOf(sum);
      if (!HalfOf(extra, excess)) continue;
      const std::string name(trace::TextOf(tables_, id));
      if (name.empty() || IsProfilerStep(name)) continue;
      // A range that encloses it takes at least as long.
      if (best && (best->name == kCompilation || (name != kCompilation && sum.in_bursts >= best_length))) continue;
      best = NamedBurst{name, sum.category, std::llround(extra), sum.in_others / other_steps_, {}, {}};
      best_id = id;
      best_length = sum.in_bursts;
    }
    if (best) FindItsBursts(tables_, windows_, best_id, series, *best);
    return best;
  }

  // Whether this rank, too, spends at least half as long in that range.
  bool IsIn(const NamedBurst& named) const {
    return std::any_of(sums_.begin(), sums_.end(), [&](const auto& each) {
      return HalfOf(ExtraOf(each.second), named.extra_ns) && trace::TextOf(tables_, each.first) == named.name;
    });
  }

 private:
  // Per burst, beyond what other steps have of it.
  double ExtraOf(const RangeSum& sum) const {
    return (sum.in_bursts - sum.in_others / other_steps_ * burst_steps_) / bursts_;
  }

  double bursts_, burst_steps_, other_steps_;
  schema::RankTables tables_;
  std::vector<StepWindow> windows_;
  std::map<std::uint32_t, RangeSum> sums_;
};

// The range, and the ranks that are in it. `longer`: ranks whose own part of the bursts is longer, the longest first;
// that of a rank that waits in a way which its own events do not show is, too.
struct NamedWithRanks {
  std::optional<NamedBurst> named;
  std::size_t position = kNowhere;  // On which it was found.
  std::vector<std::size_t> positions;
};

NamedWithRanks FindRange(const Context& context, const SlowSeries& series, const std::vector<std::size_t>& longer) {
  NamedWithRanks who;
  std::size_t unnamed = 0;
  const std::size_t read = std::min(longer.size(), rules::kBurstRanksRead);
  for (const std::size_t position : std::span(longer).first(read)) {
    if (!who.named && unnamed == rules::kBurstUnnamedRanks) break;
    const RankRanges ranges(context, series, position);
    if (!who.named) {
      who.named = ranges.NameIt(series, series.MedianExcess());
      who.position = position;
      unnamed += !who.named;
    }
    if (who.named && (position == who.position || ranges.IsIn(*who.named))) who.positions.push_back(position);
  }
  if (who.positions.size() == read) who.positions = longer;
  return who;
}

// The range in which the time is spent, or the host's part.
Clauses WhatOf(const std::optional<NamedBurst>& named) {
  using enum schema::Category::Value;
  if (!named) return {{Say(Word::kBurstHostsPart)}};
  return {{Say(named->category == kCheckpoint ? Word::kBurstCheckpoint
               : named->category == kInput    ? Word::kBurstInput
                                              : Word::kBurstRange,
               {{"range", named->name}})}};
}

// What the rank is blocked in during the bursts, if that is half of their excess.
std::optional<BlockedAt> BlockedInBursts(const Context& context, const SlowSeries& series, std::size_t position) {
  const Result<schema::RankTables> tables = context.ReadRank(context.ranks()[position]);
  if (!tables.ok()) return std::nullopt;
  const auto& cells = context.tables().step_ranks;
  std::vector<Interval> windows;
  std::vector<bool> burst;
  for (std::size_t i = 0; i < series.rows.size(); ++i)
    if (const std::size_t cell = context.Cell(series.rows[i], position); cell != kNowhere) {
      windows.push_back({cells.begin_ns[cell], cells.end_ns[cell]});
      burst.push_back(series.burst[i]);
    }
  const auto steps = static_cast<std::int64_t>(std::count(burst.begin(), burst.end(), true));
  const auto others = std::max<std::int64_t>(1, static_cast<std::int64_t>(burst.size()) - steps);
  const auto bursts = static_cast<std::int64_t>(series.bursts.size());
  std::optional<BlockedAt> most;
  std::int64_t most_ns = 0;
  for (const auto& [place, sum] : BlockedWithin(tables.value(), windows)) {
    std::int64_t in_bursts = 0;
    for (std::size_t i = 0; i < burst.size(); ++i) in_bursts += burst[i] ? sum.ns[i] : 0;
    const std::int64_t extra = (in_bursts - (sum.Total() - in_bursts) / others * steps) / bursts;
    if (!HalfOf(extra, series.MedianExcess()) || extra <= most_ns) continue;
    most_ns = extra;
    most = Described(place, sum);
  }
  return most;
}

Clause BurstAction(const std::optional<NamedBurst>& named, const std::optional<BlockedAt>& blocked, bool gpu) {
  using enum schema::Category::Value;
  if (blocked) return ActionFor(*blocked);
  if (!named) return Say(Word::kBurstNameItAction);
  if (named->category == kCheckpoint) return Say(Word::kBurstCheckpointAction);
  if (named->category == kInput) return Say(Word::kBurstInputAction);
  if (named->name.find("gc") != std::string::npos || named->name.find("garbage") != std::string::npos)
    return Say(Word::kBurstGarbageAction);
  if (named->name == kCompilation) return Say(Word::kCompileLess);
  return Say(Word::kBurstRangeAction, {{"range", named->name}, {"gpu", gpu}});
}

// Returns whether they are bursts. `by_range`: only those that a range of their own names.
bool ReportBursts(const Context& context, SlowSeries series, bool by_range, Analysis& analysis) {
  std::vector<HostShare> shares = SharesOf(context, series);
  // If the steps are longer only because of transfers, it is not a burst of the host.
  const auto of_host = [&] {
    return !shares.empty() && HalfOf(shares[0].own_ns, series.MedianExcess()) &&
           HalfOf(shares[0].host_ns, shares[0].own_ns);
  };
  if (!of_host()) return false;
  const auto longer = [&] {
    std::vector<std::size_t> positions;
    for (const HostShare& share : shares)
      if (HalfOf(share.own_ns, shares[0].own_ns)) positions.push_back(share.position);
    return positions;
  };
  const NamedWithRanks in_range = FindRange(context, series, longer());
  const std::optional<NamedBurst>& named = in_range.named;
  if (by_range && (!named || !LittleOf(named->other_ns, named->extra_ns))) return false;
  std::vector<std::size_t> at;
  if (named) {
    at = named->at;
    if (named->bursts.size() < series.bursts.size()) {
      series.Keep(named->bursts);
      shares = SharesOf(context, series);
      if (!of_host()) return false;
    }
  } else {
    for (const Burst& burst : series.bursts) at.push_back(burst.first);
  }
  const auto period = FindPeriod(context, series, at);
  if (!period) return false;
  std::int64_t sum = 0;
  for (const Burst& burst : series.bursts) sum += burst.excess_ns;
  const std::int64_t each = series.MedianExcess();
  const std::int64_t per_step = sum / static_cast<std::int64_t>(series.ns.size());
  std::vector<std::int32_t> ranks;
  for (const std::size_t position : named ? in_range.positions : longer()) ranks.push_back(context.ranks()[position]);
  const std::size_t position = named ? in_range.position : shares[0].position;
  const bool all = ranks.size() == context.ranks().size();
  std::sort(ranks.begin(), ranks.end());

  const bool in_steps = period->steps > 0;
  Finding finding;
  finding.id = FindingId::kBurstPeriodic;
  finding.blocked = BlockedInBursts(context, series, position);
  // The same calls are no second finding, unless most of their time lies outside the bursts.
  if (finding.blocked)
    std::erase_if(analysis.findings, [&](const Finding& other) {
      return other.id == FindingId::kBlocked && HalfOf(per_step, other.saves_ns_per_step.value_or(0)) &&
             SamePlace(*other.blocked, *finding.blocked);
    });
  const Clauses blocked_in = finding.blocked ? Clauses{{WhatAndWhere(*finding.blocked)}} : Clauses();
  finding.said.headline = {Say(named ? Word::kBurstIn : Word::kBurst,
                               {{"period", in_steps ? Value(Index{period->steps}) : Value(Ns{period->ns})},
                                {"in_steps", in_steps},
                                {"who", Clauses{{!all                ? Say(Word::kBurstRanks, {{"ranks", Ranks{ranks}}})
                                                 : ranks.size() == 1 ? Say(Word::kBurstOneHost)
                                                                     : Say(Word::kBurstAllRanks)}}},
                                {"one_rank", ranks.size() == 1},
                                {"what", named ? WhatOf(named) : Clauses()},
                                {"longer", Ns{each}}}),
                           Say(named ? Word::kBurstInCost : Word::kBurstCost,
                               {{"longer", Ns{each}}, {"cost", Ns{per_step}}, {"blocked_in", blocked_in}})};
  const Fact every{"period", in_steps ? Value(Num{period->steps}) : Value(Ns{period->ns})};
  const std::string short_name(named ? BeginOf(named->name, 30) : "");
  finding.said.brief = {
      finding.blocked ? Say(Word::kBurstEveryBrief, {{"what", Clauses{{WaitName(*finding.blocked)}}}, every})
      : !named        ? Say(Word::kBurstBrief)
               : Say(in_steps ? Word::kBurstInEveryBrief : Word::kBurstEveryBrief, {{"what", short_name}, every})};
  const auto number = [](std::size_t n) { return Index{static_cast<std::int64_t>(n)}; };
  finding.said.evidence = {Say(Word::kBurstEvidence, {{"bursts", number(series.bursts.size())},
                                                      {"steps", number(series.ns.size())},
                                                      {"alike", number(period->fitting)},
                                                      {"distances", number(period->distances)},
                                                      {"within", Ns{named ? named->extra_ns : shares[0].host_ns}},
                                                      {"what", WhatOf(named)},
                                                      {"rank", Index{context.ranks()[position]}}})};
  if (named && finding.blocked)
    finding.said.evidence.push_back(Say(Word::kBurstBlockedEvidence, {{"blocked_in", blocked_in}}));
  finding.said.action = {
      BurstAction(named, finding.blocked, context.tables().ranks.gpu[context.RankRow(position)] != 0)};
  finding.saves_ns_per_step = per_step;
  finding.upper_bound = true;
  finding.rank = all ? -1 : context.ranks()[position];
  finding.explain = {{"step", "step_ns", "longer_ns"}, {}};
  for (std::size_t i = 0; i < at.size(); ++i)
    finding.explain.rows.push_back(
        {context.tables().steps.index[series.rows[at[i]]], series.ns[at[i]], series.bursts[i].excess_ns});
  analysis.findings.push_back(std::move(finding));
  return true;
}

}  // namespace

void FindBursts(const Context& context, Analysis& analysis) {
  std::size_t asked = 0;  // With the same bursts the answer is the same.
  for (const bool by_range : {false, true}) {
    auto series = FindSlowSteps(context, by_range ? rules::kDeviates : rules::kOutlier);
    if (!series || series->bursts.size() == asked) continue;
    asked = series->bursts.size();
    if (ReportBursts(context, std::move(*series), by_range, analysis)) return;
  }
}

}  // namespace lockstep::analysis
