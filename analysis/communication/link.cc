// Reports a host whose network is slower than the others', or a slow link between two hosts.

#include "analysis/communication/link.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/choose_findings.h"
#include "analysis/core/format.h"
#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "merge/timeline/step_length.h"

namespace lockstep::analysis {
namespace {

constexpr std::size_t kRowsShown = 20;

std::string HostName(const Context& context, std::uint32_t node) { return std::string(context.timeline().Text(node)); }
std::string PText(double p) { return p < 0.001 ? "< 0.001" : fmt::format("{:.3f}", p); }

std::vector<std::string> SlowHosts(const Context& context, const SlowNetwork& found) {
  std::vector<std::string> hosts;
  for (const std::size_t host : found.hosts) hosts.push_back(HostName(context, found.all[host]));
  std::sort(hosts.begin(), hosts.end());
  return hosts;
}

std::string EvidenceOf(const Context& context, const SlowNetwork& found) {
  const std::vector<double> behind(found.behind_ns.begin(), found.behind_ns.end());
  const auto [low, high] =
      BootstrapInterval(behind, BlockLength({behind}), Statistic::kMean, context.options().seed + 211);
  const std::string unit = context.units_are_steps() ? "step" : "slice";
  const std::string rates = found.most_rate > 0 ? fmt::format("; it moves {} at least and {} at most",
                                                              Bandwidth(found.least_rate), Bandwidth(found.most_rate))
                                                : "";
  // The same to three digits: one number.
  const std::string from = Duration(static_cast<std::int64_t>(low)), to = Duration(static_cast<std::int64_t>(high));
  const std::string between = from == to ? from : fmt::format("{} to {}", from, to);
  if (found.first)
    return fmt::format(
        "{} of {}: {} there, {} on the last of the others; first there in {} of {}, p {}; {} per {} (95 %){}, even "
        "if it sends everything to each rank by itself: less than half of gigabit Ethernet's rate",
        Name(static_cast<CollectiveKind>(found.kind)), Bytes(found.bytes), Duration(found.late_ns),
        Duration(found.others_ns), Count(found.last), Count(found.instances), PText(found.p_value), between, unit,
        rates);
  return fmt::format(
      "{} of {}: {} ({}) {}, {} ({}) {}; later there in {} of {}, p {}; {} per {} (95 %){}",
      Name(static_cast<CollectiveKind>(found.kind)), Bytes(found.bytes), Duration(found.late_ns),
      Bandwidth(found.late_rate), found.hosts.size() > 1 ? "on the later of them" : "there", Duration(found.others_ns),
      Bandwidth(found.others_rate),
      found.from ? fmt::format("on {} before it", HostName(context, found.all[*found.from])) : "elsewhere",
      Count(found.last), Count(found.instances), PText(found.p_value), between, unit, rates);
}

// Whose network costs that. Data that come late say which hosts wait for them; the slow host may be one that sends to
// these and has everything early itself.
std::string Blamed(const Context& context, const SlowNetwork& found, const std::vector<std::string>& hosts) {
  const std::string before = found.from ? HostName(context, found.all[*found.from]) : "";
  if (found.first)
    return fmt::format("a slow network of {}, of all hosts, or of one through which the others get them,", hosts[0]);
  if (found.SurelyRing()) {
    if (found.ring == RingLinks::kInto) return fmt::format("a slow network from {} to {}", before, hosts[0]);
    if (found.ring == RingLinks::kAround) return fmt::format("a slow network of {}", hosts[0]);
    return fmt::format("a slow network there or from {} to it", before);
  }
  if (hosts.size() == 1)
    return fmt::format("a slow network there or of a host that sends there{}",
                       found.from ? fmt::format(" (around a ring: from {})", before) : "");
  const std::string in_ring =
      found.ring == RingLinks::kNone
          ? ""
          : fmt::format("; around a ring it is {}", HostName(context, found.all[found.hosts.front()]));
  return fmt::format("a slow network of {}, or of a host that sends there (which of them, this run cannot tell{})",
                     Listed(hosts, " or "), in_ring);
}

Finding OfCollectives(const Context& context, const Analysis& analysis, const SlowNetwork& found) {
  const Summary& s = analysis.summary;
  const std::int64_t per_unit = merge::MeanLength(found.behind_ns);
  const std::vector<std::string> hosts = SlowHosts(context, found);
  const std::string slow = Listed(hosts);
  // It is unknown how fast the transfers would be without it. Therefore its upper bound is all of the transfers and the
  // waiting for ranks that are late because of it.
  std::int64_t waiting = s.terms.exposed_wait_ns - s.message_wait_ns;
  for (const Finding& finding : analysis.findings)
    if (finding.id == FindingId::kStragglerArrival)
      waiting -= std::min(waiting, finding.saves_ns_per_step.value_or(waiting));
  const std::int64_t price = s.terms.exposed_transfer_ns + s.terms.exposed_unsplit_ns + std::min(waiting, per_unit);
  Finding finding;
  finding.hosts = hosts;
  finding.one_of_hosts = hosts.size() > 1;
  finding.or_another_host = !found.SurelyRing() || found.ring == RingLinks::kEither;
  if (found.SurelyRing() && found.ring == RingLinks::kInto)
    finding.hosts.insert(finding.hosts.begin(), HostName(context, found.all[*found.from]));
  if (found.most_rate > 0)
    finding.network_bytes_per_s = {static_cast<std::int64_t>(found.least_rate),
                                   static_cast<std::int64_t>(found.most_rate)};
  std::string claim;
  if (found.first) {
    claim =
        fmt::format("Data reach all other hosts {} after {} ({})", Duration(per_unit), slow, RankNames(found.ranks));
    finding.brief = fmt::format("data reach the hosts other than {} late", slow);
  } else {
    claim =
        fmt::format("Data reach {} ({}) {} later than other hosts", slow, RankNames(found.ranks), Duration(per_unit));
    finding.brief = fmt::format("data reach {} later than other hosts", slow);
  }
  finding.blamed = Blamed(context, found, hosts);
  finding.headline = fmt::format("{}: {} costs at most {}.", claim, finding.blamed, OfTheStep(s, price));
  if (s.per_step) finding.saves_ns_per_step = price;
  finding.covers_transfer = true;
  finding.rank = found.ranks.size() == 1 ? found.ranks[0] : -1;
  finding.evidence = EvidenceOf(context, found);
  if (found.from)
    finding.action =
        fmt::format("measure the network from {} to {} (iperf3), their link speed and errors (ethtool){}",
                    HostName(context, found.all[*found.from]), slow,
                    found.SurelyRing() ? "" : fmt::format("; if it is sound, between {} and others", slow));
  else if (finding.one_of_hosts)
    finding.action = fmt::format(
        "measure the network between each of {} and the other hosts (iperf3), their link speed and errors (ethtool), "
        "then the others': one that is slow delays the hosts that wait for its data",
        slow);
  else
    finding.action = fmt::format(
        "measure the network between {} and the other hosts (iperf3), its link speed and errors (ethtool), and see "
        "what else uses it; if it is sound, the other hosts'",
        slow);
  finding.explain.columns = {context.units_are_steps() ? "step" : "slice", "later_ns"};
  std::vector<std::size_t> order(found.behind_ns.size());
  for (std::size_t u = 0; u < order.size(); ++u) order[u] = u;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return found.behind_ns[a] > found.behind_ns[b]; });
  order.resize(std::min(order.size(), kRowsShown));
  for (const std::size_t u : order) {
    const Unit& unit = context.units()[u];
    finding.explain.rows.push_back(
        {unit.step != kNowhere ? context.tables().steps.index[unit.step] : static_cast<std::int64_t>(u),
         found.behind_ns[u]});
  }
  return finding;
}

Finding OfMessages(const Context& context, const Analysis& analysis, const SlowMessages& found) {
  const Summary& s = analysis.summary;
  const std::string a = HostName(context, found.hosts[0]),
                    b = found.hosts.size() > 1 ? HostName(context, found.hosts[1]) : "";
  using Direction = SlowMessages::Direction;
  const std::string way = !b.empty() && found.direction == Direction::kBoth ? fmt::format("between {} and {}", a, b)
                          : !b.empty()                                      ? fmt::format("from {} to {}", a, b)
                          : found.direction == Direction::kFrom             ? fmt::format("from {} to other hosts", a)
                          : found.direction == Direction::kTo               ? fmt::format("from other hosts to {}", a)
                                                                            : fmt::format("to and from {}", a);
  const std::string others = found.beside_the_way_back ? "those back" : "on other ways";
  Finding finding;
  // One call's end says of none of its messages when it had come.
  finding.headline =
      fmt::format("{} {} take {} per {}, {} {}: a slow network there costs at most {}.",
                  found.several_ways ? "Calls that wait for messages" : "Messages", way, Duration(found.slow_ns),
                  Bytes(found.bytes), others, Duration(found.others_ns), OfTheStep(s, found.behind_ns));
  finding.brief = fmt::format("messages {} are slow", way);
  if (s.per_step) finding.saves_ns_per_step = found.behind_ns;
  finding.evidence =
      fmt::format("{} against {}; slow are {} of {} messages, p {}", Bandwidth(found.slow_rate),
                  Bandwidth(found.others_rate), Count(found.slow), Count(found.compared), PText(found.p_value));
  finding.action = b.empty()
                       ? fmt::format(
                             "measure the network between {} and the other hosts (iperf3), its link speed and errors "
                             "(ethtool), and see what else uses it",
                             a)
                       : fmt::format("measure the network {} (iperf3), its link speed and errors (ethtool)", way);
  finding.explain = found.rates;
  if (found.slow_rate > 0)
    finding.network_bytes_per_s = {static_cast<std::int64_t>(found.slow_rate),
                                   static_cast<std::int64_t>(found.slow_rate)};
  finding.hosts.push_back(a);
  if (!b.empty()) finding.hosts.push_back(b);
  return finding;
}

}  // namespace

SlowLink FindSlowLink(const Context& context, const Analysis& analysis) {
  SlowLink link;
  const double least = kWorthShare * static_cast<double>(analysis.summary.terms.Sum());
  link.messages = FindSlowMessages(context, analysis.summary);
  link.collectives = FindSlowNetwork(context);
  if (!link.collectives) return link;
  const SlowNetwork& found = *link.collectives;
  // Data reach a rank that is itself late, and the ranks with which it exchanges them, later by as much: that is not
  // evidence about the network.
  const std::int64_t behind_ns = LowerMedian(found.behind_ns);
  std::int64_t own_ns = 0;
  for (const Straggler& straggler : analysis.stragglers)
    if (std::binary_search(found.ranks.begin(), found.ranks.end(), straggler.rank))
      own_ns = std::max(own_ns, straggler.own_late_ns.value_or(behind_ns));
  bool news = static_cast<double>(behind_ns - own_ns) >= least;
  // If two hosts exchange data, a collective does not show which of them is slow; messages show more.
  if (link.messages)
    news &= std::any_of(found.hosts.begin(), found.hosts.end(), [&](std::size_t host) {
      const auto& theirs = link.messages->hosts;
      return std::find(theirs.begin(), theirs.end(), found.all[host]) != theirs.end();
    });
  if (!news) link.collectives.reset();
  return link;
}

void FindSlowLinks(const Context& context, Analysis& analysis) {
  if (analysis.summary.terms.Sum() <= 0) return;
  const SlowLink link = FindSlowLink(context, analysis);
  if (!link.any()) return;
  Finding finding = link.messages ? OfMessages(context, analysis, *link.messages)
                                  : OfCollectives(context, analysis, *link.collectives);
  if (link.messages && link.collectives) {
    Finding of_collectives = OfCollectives(context, analysis, *link.collectives);
    finding.evidence += fmt::format("; {}: {}", of_collectives.brief, of_collectives.evidence);
    finding.saves_ns_per_step = std::max(finding.saves_ns_per_step, of_collectives.saves_ns_per_step);
    finding.covers_transfer = true;
  }
  finding.id = FindingId::kLinkSlow;
  finding.upper_bound = true;
  finding.confidence = 0.7;
  analysis.findings.push_back(std::move(finding));
}

}  // namespace lockstep::analysis
