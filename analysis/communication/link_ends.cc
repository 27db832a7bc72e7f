#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_map>

#include "analysis/communication/clock_resolution.h"
#include "analysis/communication/link.h"
#include "analysis/core/binomial.h"
#include "analysis/core/statistics.h"
#include "analysis/rules/network.h"
#include "core/collective.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

// One instance: how long the data took to reach each host after the last arrival.
struct Passage {
  std::size_t collective = 0, unit = kNowhere;
  std::vector<std::int64_t> ns;  // By host.
  std::int64_t resolution_ns = 0;
  std::int64_t operations = 1;  // The number of operations that the members waited for together.
};
struct Passages {
  std::vector<std::uint32_t> hosts;  // In the order in which the communicator's ranks first appear on them.
  std::vector<Passage> passages;
};
using SizeClass = std::tuple<std::vector<std::uint32_t>, std::uint8_t, std::uint64_t>;

std::int64_t Least(const std::vector<std::int64_t>& of) { return *std::min_element(of.begin(), of.end()); }
std::int64_t Most(const std::vector<std::int64_t>& of) { return *std::max_element(of.begin(), of.end()); }

// The hosts of a collective's members.
class HostPlaces {
 public:
  explicit HostPlaces(const Context& context) : context_(context) {
    std::unordered_map<std::uint32_t, std::uint32_t> numbers;
    for (std::size_t p = 0; p < context.ranks().size(); ++p)
      number_.push_back(numbers.emplace(NodeOf(p), static_cast<std::uint32_t>(numbers.size())).first->second);
    place_.assign(numbers.size(), schema::kNone);
  }

  // Those of the members of `c`, in the order in which these are first on them; none if a member is unknown.
  const std::vector<std::uint32_t>& Find(std::size_t c) {
    std::fill(place_.begin(), place_.end(), schema::kNone);
    hosts_.clear();
    const auto& members = context_.tables().collective_ranks;
    for (std::size_t m = context_.timeline().FirstMember(c); m < context_.timeline().FirstMember(c + 1); ++m) {
      const std::size_t p = context_.Position(members.rank[m]);
      if (p == kNowhere) {
        hosts_.clear();
        break;
      }
      if (place_[number_[p]] != schema::kNone) continue;
      place_[number_[p]] = static_cast<std::uint32_t>(hosts_.size());
      hosts_.push_back(NodeOf(p));
    }
    return hosts_;
  }
  const std::vector<std::uint32_t>& found() const { return hosts_; }
  // The index in what was found last of the host of one of those members.
  std::size_t PlaceOf(std::size_t position) const { return place_[number_[position]]; }

 private:
  std::uint32_t NodeOf(std::size_t position) const { return context_.tables().ranks.node[context_.RankRow(position)]; }

  const Context& context_;
  std::vector<std::uint32_t> number_;  // By position: of its node, from 0.
  std::vector<std::uint32_t> place_;   // By number.
  std::vector<std::uint32_t> hosts_;
};

// Returns the passage of the instance whose hosts were found last; empty if the end of a member is unknown.
std::optional<Passage> PassageOf(const Context& context, std::size_t c, const HostPlaces& hosts) {
  const auto& t = context.tables().collectives;
  const auto& members = context.tables().collective_ranks;
  const std::size_t first = context.timeline().FirstMember(c), last = context.timeline().FirstMember(c + 1);
  // A posted operation may make progress only from the time at which the last member waits for it.
  std::int64_t all_there = t.last_arrival_ns[c];
  for (std::size_t m = first; m < last; ++m)
    if (members.end_low_ns[m] < members.end_high_ns[m]) all_there = std::max(all_there, members.end_low_ns[m]);
  Passage passage{c, context.UnitAt(t.last_arrival_ns[c]), std::vector<std::int64_t>(hosts.found().size(), -1),
                  ResolutionNs(t.error_ns[c])};
  for (std::size_t m = first; m < last; ++m) {
    const std::size_t p = context.Position(members.rank[m]);
    if (p == kNowhere || members.end_high_ns[m] == schema::kNoTime) return std::nullopt;
    std::int64_t& ns = passage.ns[hosts.PlaceOf(p)];
    ns = std::max(ns, std::max<std::int64_t>(0, members.end_high_ns[m] - all_there));
  }
  return passage;
}

// Operations that the members leave together after one wait have the same ends: they are one passage.
bool SameEnds(const Context& context, std::size_t a, std::size_t b) {
  const auto& members = context.tables().collective_ranks;
  const std::size_t m = context.timeline().FirstMember(a), k = context.timeline().FirstMember(b);
  const std::size_t n = context.timeline().FirstMember(a + 1) - m;
  if (n != context.timeline().FirstMember(b + 1) - k) return false;
  for (std::size_t i = 0; i < n; ++i)
    if (members.rank[m + i] != members.rank[k + i] || members.end_high_ns[m + i] != members.end_high_ns[k + i])
      return false;
  return true;
}

// An upper bound of the probability that one set of so many hosts is last so often if every set were equally likely to
// be last.
double ChanceOf(std::int64_t last, std::int64_t instances, std::size_t hosts, std::size_t named) {
  double sets = 1;
  for (std::size_t i = 0; i < named; ++i) sets = sets * static_cast<double>(hosts - i) / static_cast<double>(i + 1);
  return std::min(1.0, sets * BinomialTail(static_cast<double>(last), static_cast<double>(instances), 1 / sets));
}

// The lower median of how late each host is between the first (0) and the last (1).
std::vector<double> TypicalPlaces(const Passages& group) {
  const std::size_t n = group.hosts.size();
  std::vector<double> typical(n);
  for (std::size_t h = 0; h < n; ++h) {
    std::vector<double> shares;
    for (const Passage& passage : group.passages) {
      const std::int64_t least = Least(passage.ns), most = Most(passage.ns);
      shares.push_back(most > least ? static_cast<double>(passage.ns[h] - least) / static_cast<double>(most - least)
                                    : 0);
    }
    typical[h] = LowerMedian(std::move(shares));
  }
  return typical;
}

// The hosts that are not among the first, the latest first. A host whose network is slow both ways is one of them
// unless it is the root of a tree: it has everything later than the others, and whoever it sends to may be later still.
std::vector<std::size_t> LateHosts(const std::vector<double>& typical) {
  std::vector<std::size_t> late;
  for (std::size_t h = 0; h < typical.size(); ++h)
    if (typical[h] >= rules::kLinkLatePlace) late.push_back(h);
  std::stable_sort(late.begin(), late.end(), [&](std::size_t a, std::size_t b) { return typical[a] > typical[b]; });
  return late;
}

// The one host that has the data long before all others, which have them together: the root of a tree, or a host that
// sends slowly.
std::optional<std::size_t> OnlyFirst(const std::vector<double>& typical) {
  std::optional<std::size_t> first;
  for (std::size_t h = 0; h < typical.size(); ++h) {
    if (typical[h] > 1 - rules::kLinkLatePlace) continue;
    if (first || typical[h] >= rules::kLinkLatePlace) return std::nullopt;
    first = h;
  }
  return first;
}

bool Contains(const std::vector<std::size_t>& of, std::size_t value) {
  return std::find(of.begin(), of.end(), value) != of.end();
}

// How the hosts follow one after the other around a ring from `behind`, which has the data last: behind a slow link,
// or, together with the next, because both of its links are slow.
RingLinks AroundRing(const std::vector<double>& typical, std::size_t behind) {
  const std::size_t n = typical.size();
  bool one_link = true, both = true;
  for (std::size_t i = 0; i < n; ++i) {
    const double place = typical[(behind + i) % n], steps = static_cast<double>(n - 1);
    one_link &= std::abs(place - (1 - static_cast<double>(i) / steps)) <= rules::kLittle;
    both &= std::abs(place - (i == 0 ? 1 : 1 - static_cast<double>(i - 1) / (steps - 1))) <= rules::kLittle;
  }
  if (one_link && both) return RingLinks::kEither;
  return one_link ? RingLinks::kInto : both ? RingLinks::kAround : RingLinks::kNone;
}

// Around a ring each host has its data a little later than the previous one, and the host behind a slow link has them
// last: it is where the step from one host to the next is largest.
struct InRing {
  std::size_t behind = 0;
  RingLinks links = RingLinks::kNone;
};
InRing BehindSlowLink(const Passages& group, const std::vector<double>& typical) {
  const std::size_t n = group.hosts.size();
  std::vector<std::int64_t> largest(n, 0);
  for (const Passage& passage : group.passages) {
    std::size_t at = 0;
    std::int64_t most = INT64_MIN;
    for (std::size_t h = 0; h < n; ++h)
      if (const std::int64_t step = passage.ns[h] - passage.ns[(h + n - 1) % n]; step > most) {
        most = step;
        at = h;
      }
    // Else several links take equally long.
    largest[at] += MostOf(most, Most(passage.ns) - Least(passage.ns)) && most > passage.resolution_ns;
  }
  const std::int64_t times = Most(largest);
  if (!NearlyAllOf(times, group.passages.size())) return {};
  const auto behind = static_cast<std::size_t>(std::find(largest.begin(), largest.end(), times) - largest.begin());
  return {behind, AroundRing(typical, behind)};
}

// Who may be slow, and in `found.from` or `found.first` how that shows; nobody if it may be anybody. Returns the least
// spread that counts.
double FindSuspects(const Passages& group, SlowNetwork& found) {
  const std::vector<double> typical = TypicalPlaces(group);
  const std::size_t n = group.hosts.size();
  double least_spread = rules::kLinkSpread;
  if (const auto first = OnlyFirst(typical)) {
    found.hosts = {*first};
    found.first = true;
    return least_spread;
  }
  found.hosts = LateHosts(typical);
  if (found.hosts.size() > 1 && n >= rules::kLinkAroundHosts) {
    if (const InRing in = BehindSlowLink(group, typical); in.links != RingLinks::kNone) {
      least_spread = rules::kLinkUnlikeSpread;
      found.ring = in.links;
      found.hosts = {in.behind};
      // Of few hosts the next may be late because its own network is slow, by another algorithm.
      if (!found.SurelyRing() && in.links != RingLinks::kInto) found.hosts.push_back((in.behind + 1) % n);
      if (found.hosts.size() == 1) found.from = (in.behind + n - 1) % n;
    }
  }
  if (found.hosts.size() > rules::kLinkSuspects || MostOf(found.hosts.size(), n)) found.hosts.clear();
  return least_spread;
}

// The members of the collectives on these hosts.
std::vector<std::int32_t> RanksOf(const Context& context, const Passages& group,
                                  const std::vector<std::size_t>& hosts) {
  const auto& members = context.tables().collective_ranks;
  const std::size_t c = group.passages.front().collective;
  std::vector<std::int32_t> ranks;
  for (std::size_t m = context.timeline().FirstMember(c); m < context.timeline().FirstMember(c + 1); ++m) {
    const std::uint32_t node = context.tables().ranks.node[context.RankRow(context.Position(members.rank[m]))];
    for (const std::size_t host : hosts)
      if (group.hosts[host] == node) ranks.push_back(members.rank[m]);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// What must have crossed the slow network, and what can have, whatever the algorithm: in an all-reduce all ranks need
// what this host adds, and it needs what they add; after the others are done each of its ranks needs at most the
// result.
void FindRates(const Context& context, const Passages& group, std::int64_t operations, std::int64_t alone_ns,
               SlowNetwork& found) {
  const std::size_t c = group.passages.front().collective;
  const auto& t = context.tables().collectives;
  if (static_cast<CollectiveKind>(t.kind[c]) != CollectiveKind::kAllReduce) return;
  const auto bytes = static_cast<double>(t.bytes[c]);
  std::size_t own = 0;
  const std::size_t all = t.expected[c];
  for (const std::size_t host : found.hosts) own = std::max(own, RanksOf(context, group, {host}).size());
  const std::size_t ranks = found.first ? all - std::min<std::size_t>(all, own) : own;
  const std::int64_t in_all_ns = found.first ? found.others_ns : found.late_ns;
  if (in_all_ns > 0) found.least_rate = bytes * 1e9 / static_cast<double>(in_all_ns);
  if (alone_ns > 0)
    found.most_rate =
        bytes * static_cast<double>(operations) * static_cast<double>(ranks) * 1e9 / static_cast<double>(alone_ns);
}

// Ranks that wait for a core are late in every round by as much as they wait, whatever the network: how long that is
// beside the time that they have one, at least 1.
double TimesByMissingCores(const Context& context) {
  const auto& totals = context.tables().rank_totals;
  std::int64_t without_ns = 0, span_ns = 0;
  for (std::size_t i = 0; i < totals.rows(); ++i) {
    if (totals.offcpu_ns[i] < 0) continue;
    without_ns += totals.offcpu_ns[i];
    span_ns += SpanOf(totals, i);
  }
  if (without_ns >= span_ns) return without_ns > 0 ? std::numeric_limits<double>::infinity() : 1;
  return std::max(1.0, static_cast<double>(without_ns) / static_cast<double>(span_ns - without_ns));
}

std::optional<SlowNetwork> Judge(const Context& context, const Passages& group) {
  SlowNetwork found;
  found.all = group.hosts;
  found.instances = static_cast<std::int64_t>(group.passages.size());
  if (group.passages.size() < rules::kFewest) return std::nullopt;
  std::vector<std::int64_t> spreads, first;
  std::int64_t operations = 1;
  for (const Passage& passage : group.passages) {
    // Operations that are waited for together move one after the other, and only the last one's data show the spread.
    first.push_back(Least(passage.ns) / passage.operations);
    spreads.push_back(Most(passage.ns) - Least(passage.ns));
    operations = std::max(operations, passage.operations);
  }
  const std::int64_t spread_ns = LowerMedian(spreads);
  const double least_spread = FindSuspects(group, found) * TimesByMissingCores(context);
  if (found.hosts.empty() ||
      static_cast<double>(spread_ns) < least_spread * static_cast<double>(LowerMedian(std::move(first))))
    return std::nullopt;
  found.ranks = RanksOf(context, group, found.hosts);
  std::vector<std::int64_t> late, others, gaps;
  for (const Passage& passage : group.passages) {
    std::int64_t least = INT64_MAX, most = 0, first_other = INT64_MAX, last_other = 0;
    for (std::size_t h = 0; h < passage.ns.size(); ++h) {
      if (Contains(found.hosts, h)) {
        least = std::min(least, passage.ns[h]);
        most = std::max(most, passage.ns[h]);
      } else if (!found.from || h == *found.from) {
        first_other = std::min(first_other, passage.ns[h]);
        last_other = std::max(last_other, passage.ns[h]);
      }
    }
    late.push_back(most);
    others.push_back(last_other);
    gaps.push_back(found.first ? first_other - most : least - last_other);
    found.last += gaps.back() > passage.resolution_ns;
  }
  found.late_ns = LowerMedian(std::move(late));
  found.others_ns = LowerMedian(std::move(others));
  const std::int64_t gap_ns = LowerMedian(std::move(gaps));
  found.p_value = ChanceOf(found.last, found.instances, group.hosts.size(), found.hosts.size());
  // Where others are as late as the named hosts there is no gap.
  if (found.p_value >= rules::kChance || !NearlyAllOf(found.last, found.instances) || !MuchOf(gap_ns, spread_ns))
    return std::nullopt;
  const auto& t = context.tables().collectives;
  const std::size_t c = group.passages.front().collective;
  found.kind = t.kind[c];
  found.bytes = t.bytes[c];
  const double moved =
      static_cast<double>(found.bytes) * BusFactor(static_cast<CollectiveKind>(found.kind), t.expected[c]);
  if (found.late_ns > 0) found.late_rate = moved * 1e9 / static_cast<double>(found.late_ns);
  if (found.others_ns > 0) found.others_rate = moved * 1e9 / static_cast<double>(found.others_ns);
  FindRates(context, group, operations, found.first ? spread_ns : gap_ns, found);
  // The root of a tree on a healthy network looks like this as well: the network is slow only if what crossed it in
  // that time is too little even if this host sent everything to every other rank by itself.
  if (found.first &&
      (found.most_rate == 0 || found.most_rate * rules::kNetworkSharedTimes >= rules::kGigabitEthernetBytesPerS))
    return std::nullopt;
  return found;
}

std::map<SizeClass, Passages> GroupPassages(const Context& context) {
  const auto& t = context.tables().collectives;
  std::map<SizeClass, Passages> groups;
  HostPlaces found(context);
  struct Before {
    std::size_t collective = 0;
    Passages* passages = nullptr;  // The group whose last passage is this collective's.
  };
  std::map<std::uint64_t, Before> before;  // By communicator.
  for (std::size_t c = 0; c < t.rows(); ++c) {
    if (!context.Comparable(c) || t.bytes[c] == 0 || t.seen[c] != t.expected[c]) continue;
    const auto [at, is_first] = before.emplace(t.comm_id[c], Before{c});
    if (!is_first && SameEnds(context, at->second.collective, c)) {
      if (at->second.passages != nullptr) ++at->second.passages->passages.back().operations;
      continue;
    }
    at->second = {c, nullptr};
    const std::vector<std::uint32_t>& hosts = found.Find(c);
    // Of two that exchange data neither is known to be the slow one.
    if (hosts.size() < rules::kMiddle) continue;
    std::optional<Passage> passage = PassageOf(context, c, found);
    if (!passage || passage->unit == kNowhere) continue;
    Passages& group = groups[{hosts, t.kind[c], t.bytes[c]}];
    group.hosts = hosts;
    group.passages.push_back(std::move(*passage));
    at->second.passages = &group;
  }
  return groups;
}

// The kind and size whose data are spread most in time; null without any.
const Passages* MostSpread(const std::map<SizeClass, Passages>& groups) {
  const Passages* worst = nullptr;
  std::int64_t most = 0;
  for (const auto& [size, group] : groups) {
    std::int64_t sum = 0;
    for (const Passage& passage : group.passages) sum += Most(passage.ns) - Least(passage.ns);
    if (sum <= most) continue;
    most = sum;
    worst = &group;
  }
  return worst;
}

}  // namespace

std::optional<UnlikeHosts> FindUnlikeHosts(const Context& context) {
  const std::map<SizeClass, Passages> groups = GroupPassages(context);
  const Passages* worst = MostSpread(groups);
  if (worst == nullptr) return std::nullopt;
  UnlikeHosts found;
  std::vector<std::int64_t> spread, per_unit(context.units().size(), 0);
  for (const Passage& passage : worst->passages) {
    const std::int64_t first = Least(passage.ns), ns = Most(passage.ns) - first;
    spread.push_back(ns);
    per_unit[passage.unit] += ns;
    found.unlike += ns > passage.resolution_ns && static_cast<double>(ns * passage.operations) >=
                                                      rules::kLinkUnlikeSpread * static_cast<double>(first);
  }
  found.instances = static_cast<std::int64_t>(spread.size());
  if (spread.size() < rules::kFewest || !NearlyAllOf(found.unlike, found.instances)) return std::nullopt;
  found.spread_ns = LowerMedian(std::move(spread));
  found.behind_ns = LowerMedian(std::move(per_unit));
  const std::size_t c = worst->passages.front().collective;
  found.kind = context.tables().collectives.kind[c];
  found.bytes = context.tables().collectives.bytes[c];
  return found;
}

std::optional<SlowNetwork> FindSlowNetwork(const Context& context) {
  const std::map<SizeClass, Passages> groups = GroupPassages(context);
  const Passages* worst = MostSpread(groups);
  if (worst == nullptr) return std::nullopt;
  std::optional<SlowNetwork> found = Judge(context, *worst);
  if (!found) return std::nullopt;
  // Another kind or size may be moved by another algorithm, in which other hosts wait for the slow one.
  for (const auto& [size, group] : groups) {
    if (&group == worst || group.hosts != worst->hosts || found->hosts.size() == 1) continue;
    const std::optional<SlowNetwork> other = Judge(context, group);
    if (!other || other->first) continue;
    std::vector<std::size_t> both;
    for (const std::size_t host : found->hosts)
      if (Contains(other->hosts, host)) both.push_back(host);
    if (both.empty() || both.size() == found->hosts.size()) continue;
    found->hosts = std::move(both);
    found->ring = RingLinks::kNone;
    found->ranks = RanksOf(context, *worst, found->hosts);
  }
  found->behind_ns.assign(context.units().size(), 0);
  for (const auto& [size, group] : groups) {
    if (group.hosts != worst->hosts) continue;
    for (const Passage& passage : group.passages) {
      std::int64_t latest = 0;
      for (const std::size_t host : found->hosts) latest = std::max(latest, passage.ns[host]);
      if (found->first) latest = Most(passage.ns);
      found->behind_ns[passage.unit] += latest - Least(passage.ns);
    }
  }
  return found;
}

}  // namespace lockstep::analysis
