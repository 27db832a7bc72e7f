#include <algorithm>
#include <map>
#include <tuple>

#include "analysis/communication/clock_resolution.h"
#include "analysis/communication/link.h"
#include "analysis/core/binomial.h"
#include "analysis/core/statistics.h"
#include "core/collective.h"

namespace lockstep::analysis {
namespace {

// A share of the time that one transfer takes on the hosts that have the data first. On a healthy network some hosts
// have them later every time by up to a sixth of that, because of the order in which an algorithm serves its members.
// The gap between the late hosts and the others must be larger.
constexpr double kLeastGap = 0.2;
// Shares of the spread: the next host in a ring may be later by the first; a host beyond the second is not among the
// first.
constexpr double kRingTolerance = 0.1, kFollowing = 0.2;
constexpr double kMostly = 0.9, kSurelyLast = 0.01;
constexpr std::size_t kLeastHosts = 3, kMostNamed = 2;

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

// Returns the passage of an instance; empty if the end of a member is unknown.
std::optional<Passage> PassageOf(const Context& context, std::size_t c, const std::vector<std::uint32_t>& hosts) {
  const auto& t = context.tables().collectives;
  const auto& members = context.tables().collective_ranks;
  const std::size_t first = context.timeline().FirstMember(c), last = context.timeline().FirstMember(c + 1);
  // A posted operation may make progress only from the time at which the last member waits for it.
  std::int64_t all_there = t.last_arrival_ns[c];
  for (std::size_t m = first; m < last; ++m)
    if (members.end_low_ns[m] < members.end_high_ns[m]) all_there = std::max(all_there, members.end_low_ns[m]);
  Passage passage{c, context.UnitAt(t.last_arrival_ns[c]), std::vector<std::int64_t>(hosts.size(), -1),
                  ResolutionNs(t.error_ns[c])};
  for (std::size_t m = first; m < last; ++m) {
    const std::size_t p = context.Position(members.rank[m]);
    if (p == kNowhere || members.end_high_ns[m] == schema::kNoTime) return std::nullopt;
    const std::uint32_t node = context.tables().ranks.node[context.RankRow(p)];
    const auto host = static_cast<std::size_t>(std::find(hosts.begin(), hosts.end(), node) - hosts.begin());
    passage.ns[host] = std::max(passage.ns[host], std::max<std::int64_t>(0, members.end_high_ns[m] - all_there));
  }
  return passage;
}

std::vector<std::uint32_t> HostsOf(const Context& context, std::size_t c) {
  const auto& members = context.tables().collective_ranks;
  std::vector<std::uint32_t> hosts;
  for (std::size_t m = context.timeline().FirstMember(c); m < context.timeline().FirstMember(c + 1); ++m) {
    const std::size_t p = context.Position(members.rank[m]);
    if (p == kNowhere) return {};
    const std::uint32_t node = context.tables().ranks.node[context.RankRow(p)];
    if (std::find(hosts.begin(), hosts.end(), node) == hosts.end()) hosts.push_back(node);
  }
  return hosts;
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

// The hosts in the upper half of the spread, the latest first.
std::vector<std::size_t> LateHosts(const Passages& group) {
  const std::vector<double> typical = TypicalPlaces(group);
  std::vector<std::size_t> late;
  for (std::size_t h = 0; h < typical.size(); ++h)
    if (typical[h] > 0.5) late.push_back(h);
  std::stable_sort(late.begin(), late.end(), [&](std::size_t a, std::size_t b) { return typical[a] > typical[b]; });
  return late;
}

bool Contains(const std::vector<std::size_t>& of, std::size_t value) {
  return std::find(of.begin(), of.end(), value) != of.end();
}

// Around a ring each host has its data a little later than the previous one, and the host behind a slow link has them
// last: it is where the step from one host to the next is largest, if no later host is later than its predecessor.
std::optional<std::size_t> BehindSlowLink(const Passages& group) {
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
    largest[at] += 2 * most > Most(passage.ns) - Least(passage.ns) && most > passage.resolution_ns;
  }
  const std::int64_t times = Most(largest);
  if (static_cast<double>(times) < kMostly * static_cast<double>(group.passages.size())) return std::nullopt;
  const auto behind = static_cast<std::size_t>(std::find(largest.begin(), largest.end(), times) - largest.begin());
  const std::vector<double> typical = TypicalPlaces(group);
  for (std::size_t i = 1; i < n; ++i)
    if (typical[(behind + i) % n] > typical[(behind + i - 1) % n] + kRingTolerance) return std::nullopt;
  return behind;
}

std::optional<SlowNetwork> Judge(const Context& context, const Passages& group) {
  SlowNetwork found;
  found.all = group.hosts;
  found.instances = static_cast<std::int64_t>(group.passages.size());
  if (found.instances < kLeastInstances) return std::nullopt;
  std::vector<std::int64_t> spread, first;
  for (const Passage& passage : group.passages) {
    // Operations that are waited for together move one after the other, and only the last one's data show the spread.
    first.push_back(Least(passage.ns) / passage.operations);
    spread.push_back(Most(passage.ns) - Least(passage.ns));
  }
  if (static_cast<double>(LowerMedian(spread)) < kLeastGap * static_cast<double>(LowerMedian(first)))
    return std::nullopt;
  found.hosts = LateHosts(group);
  // Around a ring the hosts follow one after the other, so few of them are first; where pairs exchange data, all pairs
  // but one are on time.
  const std::vector<double> typical = TypicalPlaces(group);
  const auto first_ones =
      std::count_if(typical.begin(), typical.end(), [](double place) { return place < kFollowing; });
  const bool followed = first_ones <= std::max<std::ptrdiff_t>(1, static_cast<std::ptrdiff_t>(typical.size() / 4)) &&
                        std::any_of(typical.begin(), typical.end(),
                                    [](double place) { return place >= kFollowing && place <= 1 - kFollowing; });
  if (found.hosts.size() > 1 && followed)
    if (const auto behind = BehindSlowLink(group)) {
      found.hosts = {*behind};
      found.from = (*behind + group.hosts.size() - 1) % group.hosts.size();
    }
  if (found.hosts.empty() || found.hosts.size() > kMostNamed || 2 * found.hosts.size() > group.hosts.size())
    return std::nullopt;
  std::vector<std::int64_t> late, others, gaps;
  for (const Passage& passage : group.passages) {
    std::int64_t least = INT64_MAX, most = 0, of_others = 0;
    for (std::size_t h = 0; h < passage.ns.size(); ++h) {
      if (Contains(found.hosts, h)) {
        least = std::min(least, passage.ns[h]);
        most = std::max(most, passage.ns[h]);
      } else if (!found.from || h == *found.from) {
        of_others = std::max(of_others, passage.ns[h]);
      }
    }
    late.push_back(most);
    others.push_back(of_others);
    gaps.push_back(least - of_others);
    found.last += gaps.back() > passage.resolution_ns;
  }
  found.late_ns = LowerMedian(std::move(late));
  found.others_ns = LowerMedian(std::move(others));
  found.p_value = ChanceOf(found.last, found.instances, group.hosts.size(), found.hosts.size());
  if (found.last < kLeastInstances || found.p_value >= kSurelyLast ||
      static_cast<double>(found.last) < kMostly * static_cast<double>(found.instances) ||
      static_cast<double>(LowerMedian(gaps)) < kLeastGap * static_cast<double>(LowerMedian(first)))
    return std::nullopt;
  const auto& t = context.tables().collectives;
  const auto& members = context.tables().collective_ranks;
  const std::size_t c = group.passages.front().collective;
  found.kind = t.kind[c];
  found.bytes = t.bytes[c];
  const double moved =
      static_cast<double>(found.bytes) * BusFactor(static_cast<CollectiveKind>(found.kind), t.expected[c]);
  if (found.late_ns > 0) found.late_rate = moved * 1e9 / static_cast<double>(found.late_ns);
  if (found.others_ns > 0) found.others_rate = moved * 1e9 / static_cast<double>(found.others_ns);
  for (std::size_t m = context.timeline().FirstMember(c); m < context.timeline().FirstMember(c + 1); ++m) {
    const std::uint32_t node = context.tables().ranks.node[context.RankRow(context.Position(members.rank[m]))];
    for (const std::size_t host : found.hosts)
      if (group.hosts[host] == node) found.ranks.push_back(members.rank[m]);
  }
  std::sort(found.ranks.begin(), found.ranks.end());
  return found;
}

std::map<SizeClass, Passages> GroupPassages(const Context& context) {
  const auto& t = context.tables().collectives;
  std::map<SizeClass, Passages> groups;
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
    std::vector<std::uint32_t> hosts = HostsOf(context, c);
    if (hosts.size() < kLeastHosts) continue;
    std::optional<Passage> passage = PassageOf(context, c, hosts);
    if (!passage || passage->unit == kNowhere) continue;
    Passages& group = groups[{hosts, t.kind[c], t.bytes[c]}];
    group.hosts = std::move(hosts);
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
    found.unlike += ns > passage.resolution_ns &&
                    static_cast<double>(ns * passage.operations) >= kLeastGap * static_cast<double>(first);
  }
  found.instances = static_cast<std::int64_t>(spread.size());
  if (found.unlike < kLeastInstances ||
      static_cast<double>(found.unlike) < kMostly * static_cast<double>(found.instances))
    return std::nullopt;
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
  found->behind_ns.assign(context.units().size(), 0);
  for (const auto& [size, group] : groups) {
    if (group.hosts != worst->hosts) continue;
    for (const Passage& passage : group.passages) {
      std::int64_t latest = 0;
      for (const std::size_t host : found->hosts) latest = std::max(latest, passage.ns[host]);
      found->behind_ns[passage.unit] += latest - Least(passage.ns);
    }
  }
  return found;
}

}  // namespace lockstep::analysis
