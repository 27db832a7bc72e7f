#include "analysis/stragglers/straggler_price.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/passes.h"
#include "analysis/rules/stragglers.h"
#include "core/rules/common.h"
#include "merge/timeline/step_length.h"

namespace lockstep::analysis {
namespace {

using Matrix = std::vector<std::vector<std::int64_t>>;  // [position][unit]

double ShareAbove(const std::vector<std::int64_t>& values, std::int64_t limit) {
  const auto above = std::count_if(values.begin(), values.end(), [&](std::int64_t v) { return v >= limit; });
  return static_cast<double>(above) / static_cast<double>(values.size());
}

// Limits values to an upper quantile, so that a single outlier does not make a straggler.
std::vector<double> Winsorized(const std::vector<std::int64_t>& values) {
  const std::int64_t limit = LowerQuantile(values, rules::kOutlierQuantile);
  std::vector<double> result;
  for (const std::int64_t value : values) result.push_back(static_cast<double>(std::min(value, limit)));
  return result;
}

// The rank's cost over the units from `from` on, if it exceeds the limit and the cost of every rank that is not a
// suspect, both by `statistic`, which one unit does not decide.
std::optional<StragglerCost> CostBy(Statistic statistic, const Context& context, const Matrix& price,
                                    const Suspects& suspects, std::size_t r, std::size_t from, double limit) {
  const std::vector<std::int64_t> raw(price[r].begin() + static_cast<std::ptrdiff_t>(from), price[r].end());
  const bool median = statistic == Statistic::kMedian;
  const std::vector<double> own = median ? std::vector<double>(raw.begin(), raw.end()) : Winsorized(raw);
  // Find the costliest of the others.
  std::vector<double> net = own;
  double most = 0;
  std::size_t costliest = r;
  for (std::size_t o = 0; o < price.size(); ++o) {
    if (suspects.Contains(o)) continue;
    const std::vector<std::int64_t> theirs(price[o].begin() + static_cast<std::ptrdiff_t>(from), price[o].end());
    const double mean = MeanOf(Winsorized(theirs));
    if (mean <= most) continue;
    most = mean;
    costliest = o;
  }
  for (std::size_t u = 0; u < net.size() && costliest != r; ++u)
    net[u] -= static_cast<double>(price[costliest][from + u]);
  const double usual_ns = median ? LowerMedian(own) : MeanOf(own);
  const std::size_t block = BlockLength({own});
  const auto usual_interval =
      BootstrapInterval(own, block, statistic, context.options().seed + rules::kStragglerSeedCost);
  if (!median && !StandsOut(usual_ns, most)) return std::nullopt;
  // The interval must show that it costs more than the limit, and more than the costliest of the others: autocorrelated
  // noise makes some rank the costliest of any short run, and p alone would name one in ten such runs.
  const double sure = median ? limit : rules::kOccasionalLowShare * limit;
  if (usual_ns < limit || usual_interval.first <= sure) return std::nullopt;
  const auto net_interval = BootstrapInterval(net, block, statistic, context.options().seed + rules::kStragglerSeedNet);
  if (net_interval.first <= rules::kHalf * limit) return std::nullopt;
  StragglerCost cost = MeanCost(context, price[r], from);
  cost.mutual = !StandsOut(usual_ns, most);
  return cost;
}

}  // namespace

std::optional<std::size_t> OnsetOf(const std::vector<std::int64_t>& behind, std::int64_t limit) {
  const std::size_t n = behind.size();
  if (n < rules::kEnough) return std::nullopt;
  const std::vector<double> values = Winsorized(behind);
  double before = 0, after = MeanOf(values) * static_cast<double>(n), best = 0;
  std::size_t at = 0;
  for (std::size_t k = 1; k < n; ++k) {
    before += values[k - 1];
    after -= values[k - 1];
    if (k < n / rules::kOnsetParts || k > n - std::max(n / rules::kOnsetParts, rules::kOnsetLeastUnits)) continue;
    const double difference = after / static_cast<double>(n - k) - before / static_cast<double>(k);
    if (difference > best) {
      best = difference;
      at = k;
    }
  }
  if (at == 0) return std::nullopt;
  const auto middle = behind.begin() + static_cast<std::ptrdiff_t>(at);
  // The cut is halfway between the two levels, independent of the noise.
  const std::vector<std::int64_t> early(behind.begin(), middle), late(middle, behind.end());
  const double level_before = MeanOf(Winsorized(early)), level_after = MeanOf(Winsorized(late));
  const auto cut = static_cast<std::int64_t>(0.5 * (level_before + level_after));
  if (best < static_cast<double>(limit) || level_before > rules::kLateOnTimeShare * level_after ||
      ShareAbove(early, cut) > rules::kMuch || ShareAbove(late, cut) < rules::kThroughout)
    return std::nullopt;
  return at;
}

double PairedP(const std::vector<double>& differences, std::size_t from, std::uint64_t seed, std::size_t rounds) {
  const std::vector<double> since(differences.begin() + static_cast<std::ptrdiff_t>(from), differences.end());
  if (LowerMedian(since) <= 0) return 1;
  const double p = PairedTest(since, BlockLengthApartFromShift({since}), seed, rounds);
  if (from == 0) return p;
  // The onset was chosen for its difference, of as many as the units since fit into the run. And what lasts for a while
  // comes once in a block: one of two ranks is ahead in each block since by chance once in 2^blocks.
  const auto units = static_cast<double>(since.size());
  const double blocks = units / static_cast<double>(BlockLengthApartFromShift({differences}));
  return std::min(1.0, std::max(p, std::exp2(-blocks)) * static_cast<double>(differences.size()) / units);
}

const ExposedActivity* RankActivities::Of(std::size_t position) const {
  const auto at = std::lower_bound(positions.begin(), positions.end(), position);
  return at != positions.end() && *at == position ? &activities[static_cast<std::size_t>(at - positions.begin())]
                                                  : nullptr;
}

Prices PriceOf(const Context& context, const std::vector<std::size_t>& waiting, const Suspects& suspects,
               const RankActivities& read) {
  const std::size_t n = context.ranks().size(), units = context.units().size();
  std::vector<Waits> waits;
  for (const std::size_t q : waiting) waits.push_back(WaitsFor(context, q, suspects, read.Of(q)));
  const auto at = [](const std::vector<std::int64_t>& by, std::size_t unit) { return by.empty() ? 0 : by[unit]; };
  Prices prices{Matrix(n, std::vector<std::int64_t>(units, 0)), std::vector<std::int64_t>(units, 0)};
  std::vector<std::int64_t> sample;
  // For most of many ranks nobody ever waits.
  std::vector<std::size_t> awaited;
  for (std::size_t r = 0; r < n; ++r)
    if (std::any_of(waits.begin(), waits.end(), [r](const Waits& each) { return !each.by[r].empty(); }))
      awaited.push_back(r);
  for (std::size_t u = 0; u < units; ++u) {
    for (const std::size_t r : awaited) {
      sample.clear();
      for (std::size_t w = 0; w < waiting.size(); ++w)
        if (waiting[w] != r && !(suspects.Contains(r) && suspects.Contains(waiting[w])))
          sample.push_back(at(waits[w].by[r], u));
      prices.of[r][u] = LowerMedian(sample);
    }
    sample.clear();
    for (std::size_t w = 0; w < waiting.size(); ++w)
      if (!suspects.Contains(waiting[w])) sample.push_back(at(waits[w].suspects, u));
    prices.together[u] = LowerMedian(sample);
  }
  return prices;
}

bool WorthAtLeast(const std::vector<std::int64_t>& price, double limit_ns) {
  return static_cast<double>(LowerMedian(price)) >= limit_ns || MeanOf(Winsorized(price)) >= limit_ns;
}

StragglerCost MeanCost(const Context& context, const std::vector<std::int64_t>& price, std::size_t from) {
  const std::vector<double> paid(price.begin() + static_cast<std::ptrdiff_t>(from), price.end());
  return {.ns = MeanOf(paid),
          .interval = BootstrapInterval(paid, BlockLength({paid}), Statistic::kMean,
                                        context.options().seed + rules::kStragglerSeedMean)};
}

double CostInAll(const Context& context, const std::vector<std::int64_t>& price, std::size_t from) {
  std::vector<double> shares;
  const auto length_ns = [&](std::size_t u) { return static_cast<double>(context.units()[u].length_ns()); };
  for (std::size_t u = from; u < price.size(); ++u) shares.push_back(static_cast<double>(price[u]) / length_ns(u));
  const double limit = LowerQuantile(shares, rules::kOutlierQuantile);
  double paid_ns = 0;
  for (std::size_t u = from; u < price.size(); ++u) paid_ns += std::min(shares[u - from], limit) * length_ns(u);
  return paid_ns;
}

std::optional<Assessment> Assess(const Context& context, const Prices& prices, const Suspects& suspects, std::size_t r,
                                 const std::vector<std::int64_t>& behind, double p_value, std::int64_t length,
                                 bool sharing) {
  const Matrix& price = prices.of;
  const double limit = rules::kNameShare * static_cast<double>(length);
  const auto limit_ns = static_cast<std::int64_t>(limit);
  // A drifting rank is priced at its cost since the onset.
  const std::optional<std::size_t> onset = OnsetOf(behind, limit_ns);
  const std::size_t from = onset.value_or(0);
  const std::vector<std::int64_t> own(behind.begin() + static_cast<std::ptrdiff_t>(from), behind.end());
  const double share = ShareAbove(own, limit_ns);

  std::optional<StragglerCost> cost;
  if (share >= rules::kThroughout) cost = CostBy(Statistic::kMedian, context, price, suspects, r, from, limit);
  // If it is late, or the only late rank, in some steps only, the median would be either nothing or all of it.
  if (!cost && !sharing && share >= rules::kOccasionalLeastShare &&
      share * static_cast<double>(own.size()) >= static_cast<double>(rules::kRecurs))
    cost = CostBy(Statistic::kMean, context, price, suspects, r, from, limit);
  if (!cost) return std::nullopt;

  Assessment assessment;
  assessment.from_unit = from;
  assessment.mutual = cost->mutual;
  Straggler& straggler = assessment.straggler;
  straggler.rank = context.ranks()[r];
  straggler.p_value = p_value;
  straggler.kind = onset                         ? StragglerKind::kDrifting
                   : share >= rules::kThroughout ? StragglerKind::kPersistent
                                                 : StragglerKind::kTransient;
  if (onset && context.units_are_steps())
    straggler.onset_step = context.tables().steps.index[context.units()[from].step];
  else if (onset)
    straggler.onset_ns = context.units()[from].window.begin - context.units().front().window.begin;
  straggler.saves_ns = std::llround(cost->ns);
  if (context.units_are_steps()) straggler.saves_ns_per_step = straggler.saves_ns;
  straggler.saves_interval_ns = {std::llround(cost->interval.first), std::llround(cost->interval.second)};
  return assessment;
}

std::int64_t UnitLength(const Context& context) {
  std::vector<std::int64_t> lengths;
  for (const Unit& unit : context.units())
    lengths.push_back(unit.step == kNowhere ? unit.length_ns() : context.tables().steps.step_ns[unit.step]);
  return LowerMedian(std::move(lengths));
}

std::optional<std::int64_t> StepsSince(const Context& context, std::size_t from_unit) {
  if (from_unit == 0 || !context.units_are_steps()) return std::nullopt;
  std::vector<std::int64_t> lengths_ns;
  for (std::size_t u = from_unit; u < context.units().size(); ++u)
    lengths_ns.push_back(context.tables().steps.step_ns[context.units()[u].step]);
  return merge::MeanLength(lengths_ns);
}

std::optional<Assessment> OfAll(const Context& context, std::optional<Assessment> assessment,
                                const std::vector<std::int64_t>& price, std::int64_t whole_ns) {
  if (!assessment || context.units_are_steps()) return assessment;
  Straggler& straggler = assessment->straggler;
  const double cost_ns = CostInAll(context, price, assessment->from_unit);
  if (cost_ns < rules::kNameShare * static_cast<double>(whole_ns) || straggler.saves_ns <= 0) return std::nullopt;
  const double factor = cost_ns / static_cast<double>(straggler.saves_ns);
  const auto scaled = [&](std::int64_t ns) { return std::llround(factor * static_cast<double>(ns)); };
  straggler.saves_interval_ns = {scaled(straggler.saves_interval_ns.first), scaled(straggler.saves_interval_ns.second)};
  straggler.saves_ns = scaled(straggler.saves_ns);
  return assessment;
}

bool IsPersistent(const std::vector<std::int64_t>& behind, double limit_ns) {
  return !behind.empty() && ShareAbove(behind, static_cast<std::int64_t>(limit_ns)) >= rules::kThroughout;
}

Assessment AssessHidden(const Context& context, const std::vector<std::int64_t>& price, std::size_t position,
                        double p_value) {
  const std::vector<double> values(price.begin(), price.end());
  const auto [low, high] = BootstrapInterval(values, BlockLength({values}), Statistic::kMean,
                                             context.options().seed + rules::kStragglerSeedHidden);
  Assessment assessment;
  Straggler& straggler = assessment.straggler;
  straggler.rank = context.ranks()[position];
  straggler.p_value = p_value;
  straggler.kind = StragglerKind::kPersistent;
  // What the others wait for it where they do meet it is not what it costs: that is left to the replay.
  straggler.saves_ns = merge::MeanLength(price);
  straggler.saves_interval_ns = {std::llround(low), std::llround(high)};
  return assessment;
}

}  // namespace lockstep::analysis
