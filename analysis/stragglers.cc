// Which rank makes the others wait, and what that costs per step.
//
// Price: per step, the lower median over the other ranks of the exposed waiting
// that ends with this rank's arrival and began after the second to last one had
// arrived; over steps the median. Named only if that is worth naming and the
// rank is later than the others more consistently than chance.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "analysis/lateness.h"
#include "analysis/passes.h"
#include "analysis/report/format.h"
#include "analysis/statistics.h"

namespace lockstep {
namespace {

constexpr double kSignificant = 0.01;
constexpr std::size_t kMinUnits = 5;
constexpr double kPersistentShare = 0.8;
// An occasional straggler must be responsible for most of all such waiting, often enough to be no accident.
constexpr double kOccasionalShare = 0.8, kMinOccasions = 8, kMinOccasionalShare = 0.1;
constexpr std::size_t kMaxEvidenceRows = 20;

using Matrix = std::vector<std::vector<std::int64_t>>;  // [position][unit]

struct Witnessed {
  Matrix price;
  bool exact = false;
  std::vector<ExposedActivity> activities;  // Of the ranks below.
  std::vector<std::size_t> activity_of;     // Positions, ascending.
  const ExposedActivity* Of(std::size_t position) const {
    const auto at = std::lower_bound(activity_of.begin(), activity_of.end(), position);
    return at != activity_of.end() && *at == position ? &activities[static_cast<std::size_t>(at - activity_of.begin())]
                                                      : nullptr;
  }
};

Matrix Price(const Context& context, const std::vector<std::size_t>& witnesses, const Witnessed* witnessed) {
  const std::size_t n = context.ranks().size(), units = context.units().size();
  std::vector<std::vector<std::vector<std::int64_t>>> by;
  for (const std::size_t q : witnesses)
    by.push_back(WaitsFor(context, q, witnessed == nullptr ? nullptr : witnessed->Of(q)));
  Matrix price(n, std::vector<std::int64_t>(units, 0));
  std::vector<std::int64_t> sample;
  for (std::size_t r = 0; r < n; ++r) {
    for (std::size_t u = 0; u < units; ++u) {
      sample.clear();
      for (std::size_t w = 0; w < witnesses.size(); ++w)
        if (witnesses[w] != r) sample.push_back(by[w][r].empty() ? 0 : by[w][r][u]);
      price[r][u] = LowerMedian(sample);
    }
  }
  return price;
}

Result<schema::RankTables> ReadRank(const Context& context, std::int32_t rank) {
  return context.options().read_rank ? context.options().read_rank(rank) : context.timeline().ReadRank(rank);
}

std::int64_t UnitLength(const Context& context) {
  std::vector<std::int64_t> lengths;
  for (const Unit& unit : context.units())
    lengths.push_back(unit.step == kNowhere ? unit.length_ns() : context.tables().steps.step_ns[unit.step]);
  return LowerMedian(std::move(lengths));
}

double ShareAbove(const std::vector<std::int64_t>& values, std::int64_t limit) {
  const auto above = std::count_if(values.begin(), values.end(), [&](std::int64_t v) { return v >= limit; });
  return static_cast<double>(above) / static_cast<double>(values.size());
}

// Values above their 95th percentile count as that: one hiccup is no straggler.
std::vector<double> Winsorized(const std::vector<std::int64_t>& values) {
  const std::int64_t limit = LowerQuantile(values, 0.95);
  std::vector<double> result;
  for (const std::int64_t value : values) result.push_back(static_cast<double>(std::min(value, limit)));
  return result;
}

double Mean(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// The unit from which on the price is there to stay, having been absent before.
std::optional<std::size_t> Onset(const std::vector<std::int64_t>& price, std::int64_t limit) {
  const std::size_t n = price.size();
  if (n < 20) return std::nullopt;
  const std::vector<double> values = Winsorized(price);
  double before = 0, after = Mean(values) * static_cast<double>(n), best = 0;
  std::size_t at = 0;
  for (std::size_t k = 1; k < n; ++k) {
    before += values[k - 1];
    after -= values[k - 1];
    if (k < n / 10 || k > n - n / 10) continue;
    const double difference = after / static_cast<double>(n - k) - before / static_cast<double>(k);
    if (difference > best) {
      best = difference;
      at = k;
    }
  }
  if (at == 0) return std::nullopt;
  const auto middle = price.begin() + static_cast<std::ptrdiff_t>(at);
  if (ShareAbove({price.begin(), middle}, limit) > 0.3 || ShareAbove({middle, price.end()}, limit) < kPersistentShare)
    return std::nullopt;
  return at;
}

// Medians over units of one column of step_ranks on a rank; empty if there are no steps.
std::optional<std::int64_t> MedianOf(const Context& context, std::size_t position,
                                     const std::vector<std::int64_t>& column) {
  std::vector<std::int64_t> values;
  for (const std::size_t step : context.usable_steps())
    if (const std::size_t cell = context.Cell(step, position); cell != kNowhere) values.push_back(column[cell]);
  if (values.empty()) return std::nullopt;
  return LowerMedian(std::move(values));
}

// How much more of something the rank has per step than the median of the others.
std::optional<std::int64_t> Excess(const Context& context, std::size_t position,
                                   const std::vector<std::int64_t>& column) {
  const auto own = MedianOf(context, position, column);
  std::vector<std::int64_t> others;
  for (std::size_t p = 0; p < context.ranks().size(); ++p)
    if (p != position)
      if (const auto value = MedianOf(context, p, column)) others.push_back(*value);
  if (!own || others.empty()) return std::nullopt;
  return *own - LowerMedian(std::move(others));
}

struct Cause {
  std::string name = "unknown";
  std::optional<std::int64_t> more_compute_ns, more_cpu_ns, more_delay_ns, more_input_ns;
};

Cause Explain(const Context& context, std::size_t r, const Witnessed& witnessed, std::int64_t price) {
  const auto& cells = context.tables().step_ranks;
  Cause cause;
  cause.more_compute_ns = Excess(context, r, cells.compute_ns);
  cause.more_input_ns = Excess(context, r, cells.input_ns);
  if (const ExposedActivity* own = witnessed.Of(r); own != nullptr && own->cpu_share >= 0) {
    std::vector<std::int64_t> cpu, delay;
    const auto of = [&](std::size_t p, double share) -> std::optional<std::int64_t> {
      const auto compute = MedianOf(context, p, cells.compute_ns);
      if (!compute || share < 0) return std::nullopt;
      return static_cast<std::int64_t>(static_cast<double>(*compute) * share);
    };
    for (std::size_t w = 0; w < witnessed.activities.size(); ++w) {
      const std::size_t p = witnessed.activity_of[w];
      if (p == r) continue;
      if (const auto ns = of(p, witnessed.activities[w].cpu_share)) cpu.push_back(*ns);
      if (const auto ns = of(p, witnessed.activities[w].offcpu_share)) delay.push_back(*ns);
    }
    if (const auto ns = of(r, own->cpu_share); ns && !cpu.empty()) cause.more_cpu_ns = *ns - LowerMedian(cpu);
    if (const auto ns = of(r, own->offcpu_share); ns && !delay.empty()) cause.more_delay_ns = *ns - LowerMedian(delay);
  }
  const std::int64_t compute = cause.more_compute_ns.value_or(0);
  if (cause.more_input_ns.value_or(0) * 2 >= price) {
    cause.name = "input";
  } else if (compute * 2 >= price) {
    const bool delayed = cause.more_delay_ns && *cause.more_delay_ns * 2 >= compute;
    if (!cause.more_cpu_ns)
      cause.name = "compute";
    else if (delayed && *cause.more_cpu_ns * 5 < compute)
      cause.name = "starved";
    else
      cause.name = *cause.more_cpu_ns * 4 >= compute ? "compute" : "waiting";
  }
  return cause;
}

std::string Action(const Cause& cause, const std::string& name, const std::string& node) {
  if (cause.name == "input")
    return fmt::format("prefetch input on {}, or give it the same shard size and storage as the others", name);
  if (cause.name == "starved")
    return fmt::format("give {} a core of its own (mpirun --bind-to core) or stop what else runs on {}", name, node);
  if (cause.name == "waiting")
    return fmt::format("{} uses no more CPU than the others: look for sleeps, locks or file access in its compute",
                       name);
  if (cause.name == "compute")
    return fmt::format("compare {}'s share of the work with the others', then clock and memory of {}", name, node);
  return fmt::format("look at what {} does before its collectives: lockstep analyze --explain N lists the steps", name);
}

std::string EvidenceText(const Analysis& analysis, std::size_t r, const Cause& cause, const Straggler& straggler) {
  std::string text;
  const RankRow* row = r < analysis.ranks.size() ? &analysis.ranks[r] : nullptr;
  std::int64_t total = 0;
  if (r < analysis.arrivals.size()) {
    for (const ArrivalRow& arrival : analysis.arrivals) total += arrival.last;
    total += analysis.arrivals[r].ties;
    text = fmt::format("last in {} of {} collectives", Percent(analysis.arrivals[r].last, total), Count(total));
  }
  if (row != nullptr && row->late_ns) text += fmt::format(", {} late (median)", Duration(*row->late_ns));
  if (cause.name == "input") text += fmt::format("; {} more in input", Duration(*cause.more_input_ns));
  if (cause.name == "waiting") text += "; its longer compute uses no more CPU time";
  if (cause.name == "compute" && cause.more_cpu_ns)
    text += fmt::format("; it uses {} more CPU time", Duration(*cause.more_cpu_ns));
  if (cause.name == "starved")
    text += fmt::format("; {} of its longer compute it is runnable without a core", Duration(*cause.more_delay_ns));
  if (straggler.onset_step) text += fmt::format("; since step {}", *straggler.onset_step);
  if (straggler.kind == "transient") text += "; in some steps only";
  return text + fmt::format("; p {}", straggler.p_value < 0.001 ? "< 0.001" : fmt::format("{:.3f}", straggler.p_value));
}

Evidence Rows(const Context& context, const std::vector<std::int64_t>& price,
              const std::vector<std::vector<double>>& late, std::size_t r) {
  Evidence rows{{context.units_are_steps() ? "step" : "slice", "length_ns", "others_wait_ns", "arrives_late_ns"}, {}};
  std::vector<std::size_t> order(price.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return price[a] > price[b]; });
  order.resize(std::min(order.size(), kMaxEvidenceRows));
  for (const std::size_t u : order) {
    const Unit& unit = context.units()[u];
    const bool is_step = unit.step != kNowhere;
    rows.rows.push_back({is_step ? context.tables().steps.index[unit.step] : static_cast<std::int64_t>(u),
                         is_step ? context.tables().steps.step_ns[unit.step] : unit.length_ns(), price[u],
                         static_cast<std::int64_t>(late[u][r])});
  }
  return rows;
}

struct Cost {
  double ns = 0;
  std::pair<double, double> interval{0, 0};
};

// The rank's cost by one statistic over the units from `from` on, if it is sure
// to be above the limit and above what any other rank costs.
std::optional<Cost> CostBy(Statistic statistic, const Context& context, const Matrix& price, std::size_t r,
                           std::size_t from, double limit) {
  const std::vector<std::int64_t> raw(price[r].begin() + static_cast<std::ptrdiff_t>(from), price[r].end());
  const bool median = statistic == Statistic::kMedian;
  const std::vector<double> own = median ? std::vector<double>(raw.begin(), raw.end()) : Winsorized(raw);
  std::vector<double> net(own.size());
  for (std::size_t u = 0; u < net.size(); ++u) {
    std::int64_t other = 0;
    for (std::size_t o = 0; o < price.size(); ++o)
      if (o != r) other = std::max(other, price[o][from + u]);
    net[u] = own[u] - static_cast<double>(other);
  }
  Cost cost;
  cost.ns = median ? LowerMedian(own) : Mean(own);
  const std::size_t block = BlockLength({own});
  cost.interval = BootstrapInterval(own, block, statistic, context.options().seed + 101);
  const auto net_interval = BootstrapInterval(net, block, statistic, context.options().seed + 102);
  if (cost.ns < limit || cost.interval.first <= limit || net_interval.first <= 0.5 * limit) return std::nullopt;
  return cost;
}

// The rank's cost if it deserves to be named.
std::optional<Straggler> Judge(const Context& context, const Matrix& price, std::size_t r, double p_value,
                               std::int64_t length, bool sharing) {
  if (p_value >= kSignificant) return std::nullopt;
  const double limit = kNameShare * static_cast<double>(length);
  const auto limit_ns = static_cast<std::int64_t>(limit);
  // A drifting rank is priced at what it costs since it began.
  const std::optional<std::size_t> onset = Onset(price[r], limit_ns);
  const std::size_t from = onset.value_or(0);
  const std::vector<std::int64_t> own(price[r].begin() + static_cast<std::ptrdiff_t>(from), price[r].end());
  const double share = ShareAbove(own, limit_ns);

  std::optional<Cost> cost;
  if (share >= 0.5) cost = CostBy(Statistic::kMedian, context, price, r, from, limit);
  if (!cost && !sharing && share < kPersistentShare && share >= kMinOccasionalShare &&
      share * static_cast<double>(own.size()) >= kMinOccasions) {
    // Late in some steps only: the median would say nothing or everything.
    cost = CostBy(Statistic::kMean, context, price, r, from, limit);
    double all = 0;
    for (const std::vector<std::int64_t>& each : price) all += Mean(Winsorized(each));
    if (cost && cost->ns < kOccasionalShare * all) cost.reset();
  }
  if (!cost) return std::nullopt;

  Straggler straggler;
  straggler.rank = context.ranks()[r];
  straggler.p_value = p_value;
  straggler.kind = onset ? "drifting" : share >= kPersistentShare ? "persistent" : "transient";
  if (onset && context.units()[from].step != kNowhere)
    straggler.onset_step = context.tables().steps.index[context.units()[from].step];
  straggler.saves_ns = std::llround(cost->ns);
  if (context.units_are_steps()) straggler.saves_ns_per_step = straggler.saves_ns;
  straggler.saves_interval_ns = {std::llround(cost->interval.first), std::llround(cost->interval.second)};
  return straggler;
}

}  // namespace

void FindStragglers(const Context& context, Analysis& analysis) {
  const std::size_t n = context.ranks().size(), units = context.units().size();
  if (units < kMinUnits) return;
  const std::int64_t length = UnitLength(context);
  if (length <= 0) return;
  const double worth = kNameShare * static_cast<double>(length);

  // Cheap first: an upper bound from the timeline alone. Most healthy runs end here.
  std::vector<std::size_t> witnesses = Witnesses(context);
  Witnessed witnessed;
  witnessed.price = Price(context, witnesses, nullptr);
  std::vector<std::size_t> candidates;
  for (std::size_t r = 0; r < n; ++r)
    if (static_cast<double>(LowerMedian(witnessed.price[r])) >= worth || Mean(Winsorized(witnessed.price[r])) >= worth)
      candidates.push_back(r);
  if (candidates.empty()) return;

  const std::vector<std::vector<double>> late = Lateness(context);
  std::vector<std::vector<double>> series(n, std::vector<double>(units));
  for (std::size_t u = 0; u < units; ++u)
    for (std::size_t r = 0; r < n; ++r) series[r][u] = late[u][r];
  const std::vector<double> p = LabelPermutationTest(late, BlockLength(series), context.options().seed);
  std::erase_if(candidates, [&](std::size_t r) { return p[r] >= kSignificant; });
  if (candidates.empty()) return;

  std::vector<std::size_t> read = witnesses;
  read.insert(read.end(), candidates.begin(), candidates.end());
  std::sort(read.begin(), read.end());
  read.erase(std::unique(read.begin(), read.end()), read.end());
  witnessed.exact = true;
  for (const std::size_t position : read) {
    const std::int32_t rank = context.ranks()[position];
    Result<schema::RankTables> tables = ReadRank(context, rank);
    if (!tables.ok()) {
      witnessed.exact = false;
      continue;
    }
    witnessed.activities.push_back(Activity(tables.value(), RankClockMap(context.tables().clock, rank)));
    witnessed.activity_of.push_back(position);
  }
  if (!witnessed.activities.empty()) witnessed.price = Price(context, witnesses, &witnessed);

  const bool sharing = analysis.run.sharing_ranks > 0;
  for (const std::size_t r : candidates) {
    std::optional<Straggler> judged = Judge(context, witnessed.price, r, p[r], length, sharing);
    if (!judged) continue;
    Straggler& straggler = *judged;
    const Cause cause = Explain(context, r, witnessed, straggler.saves_ns);
    straggler.cause = cause.name;
    // Ranks that share cores take them from each other, now here, now there: late for want of a core is not this
    // rank's doing. There its own compute or input must be what is longer.
    if (sharing && (cause.name == "starved" || cause.name == "unknown")) continue;
    if (r < analysis.ranks.size()) {
      straggler.score = analysis.ranks[r].straggler_score.value_or(0);
      straggler.interval = analysis.ranks[r].straggler_interval.value_or(std::pair{0.0, 0.0});
    }
    const std::string node(context.timeline().Text(context.tables().ranks.node[context.RankRow(r)]));
    const std::string name = fmt::format("rank {}", straggler.rank);
    const std::string whom = n == 2 ? "the other rank waits" : "the other ranks wait";
    Finding finding;
    finding.id = "straggler.arrival";
    finding.rank = straggler.rank;
    if (context.units_are_steps()) {
      finding.saves_ns_per_step = straggler.saves_ns_per_step;
      finding.headline =
          fmt::format("Rank {} holds {} back: {} {} of each {} step for it.", straggler.rank,
                      n == 2 ? "the other" : "everyone", whom, Duration(straggler.saves_ns), Duration(length));
    } else {
      finding.headline = fmt::format("Rank {} holds {} back: {} {} of the time for it.", straggler.rank,
                                     n == 2 ? "the other" : "everyone", whom, Percent(straggler.saves_ns, length));
    }
    finding.brief = cause.more_compute_ns && *cause.more_compute_ns > 0
                        ? fmt::format("{} ({}) computes {} longer", name, node, Duration(*cause.more_compute_ns))
                        : fmt::format("{} ({}) arrives last", name, node);
    finding.evidence = EvidenceText(analysis, r, cause, straggler);
    finding.action = Action(cause, name, node);
    finding.upper_bound = !witnessed.exact;
    finding.confidence = std::clamp(1 - 10 * straggler.p_value, 0.0, 1.0) *
                         std::min(1.0, static_cast<double>(units) / 20) * (witnessed.exact ? 1.0 : 0.7);
    finding.rows = Rows(context, witnessed.price[r], late, r);
    analysis.findings.push_back(std::move(finding));
    analysis.stragglers.push_back(std::move(straggler));
  }
}

}  // namespace lockstep
