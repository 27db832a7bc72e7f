// Reports a host whose network is slower than the others', or a slow link between two hosts.

#include "analysis/communication/link.h"

#include <algorithm>

#include "analysis/choose_findings.h"
#include "analysis/core/format.h"
#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "analysis/rules/network.h"
#include "core/rules/common.h"
#include "merge/timeline/step_length.h"

namespace lockstep::analysis {
namespace {

std::string HostName(const Context& context, std::uint32_t node) { return std::string(context.timeline().Text(node)); }
// The host before the one that has the data last around a ring, if there is one.
Value HostBefore(const Context& context, const SlowNetwork& found) {
  return found.from ? Value(HostName(context, found.all[*found.from])) : Value();
}

std::vector<std::string> SlowHosts(const Context& context, const SlowNetwork& found) {
  std::vector<std::string> hosts;
  for (const std::size_t host : found.hosts) hosts.push_back(HostName(context, found.all[host]));
  std::sort(hosts.begin(), hosts.end());
  return hosts;
}

Clause EvidenceOf(const Context& context, const SlowNetwork& found) {
  const std::vector<double> behind(found.behind_ns.begin(), found.behind_ns.end());
  const auto [low, high] =
      BootstrapInterval(behind, BlockLength({behind}), Statistic::kMean, context.options().seed + rules::kLinkSeed);
  // The same to three digits: one number.
  const auto from = static_cast<std::int64_t>(low), to = static_cast<std::int64_t>(high);
  const bool rates = found.most_rate > 0;
  return Say(found.first ? Word::kLinkFirstEvidence : Word::kLinkEvidence,
             {{"operation", std::string(Name(static_cast<CollectiveKind>(found.kind)))},
              {"bytes", Size{found.bytes}},
              {"late", Ns{found.late_ns}},
              {"late_rate", Rate{found.late_rate}},
              {"hosts", Names{SlowHosts(context, found)}},
              {"others", Ns{found.others_ns}},
              {"others_rate", Rate{found.others_rate}},
              {"before", HostBefore(context, found)},
              {"last", Num{found.last}},
              {"instances", Num{found.instances}},
              {"chance", Probability{found.p_value}},
              {"low", Ns{from}},
              {"high", If(Duration(from) != Duration(to), Ns{to})},
              {"per_step", context.units_are_steps()},
              {"least_rate", If(rates, Rate{found.least_rate})},
              {"most_rate", If(rates, Rate{found.most_rate})}});
}

// Whose network costs that. Data that come late say which hosts wait for them; the slow host may be one that sends to
// these and has everything early itself.
Clause Blamed(const Context& context, const SlowNetwork& found, const Names& hosts) {
  const Value before = HostBefore(context, found);
  if (found.first) return Say(Word::kLinkOfFirst, {{"hosts", hosts}});
  if (found.SurelyRing()) {
    if (found.ring == RingLinks::kInto) return Say(Word::kLinkInto, {{"before", before}, {"hosts", hosts}});
    if (found.ring == RingLinks::kAround) return Say(Word::kLinkAround, {{"hosts", hosts}});
    return Say(Word::kLinkThereOrInto, {{"before", before}});
  }
  if (hosts.values.size() == 1) return Say(Word::kLinkThere, {{"before", before}});
  const bool in_ring = found.ring != RingLinks::kNone;
  return Say(Word::kLinkOfSeveral,
             {{"hosts", hosts}, {"in_ring", If(in_ring, HostName(context, found.all[found.hosts.front()]))}});
}

Finding OfCollectives(const Context& context, const Analysis& analysis, const SlowNetwork& found) {
  const Summary& s = analysis.summary;
  const std::int64_t per_unit = merge::MeanLength(found.behind_ns);
  const Names hosts{SlowHosts(context, found)};
  // It is unknown how fast the transfers would be without it. Therefore its upper bound is all of the transfers and the
  // waiting for ranks that are late because of it.
  std::int64_t waiting = s.terms.exposed_wait_ns - s.message_wait_ns;
  for (const Finding& finding : analysis.findings)
    if (finding.id == FindingId::kStragglerArrival)
      waiting -= std::min(waiting, finding.saves_ns_per_step.value_or(waiting));
  const std::int64_t price = s.terms.exposed_transfer_ns + s.terms.exposed_unsplit_ns + std::min(waiting, per_unit);
  Finding finding;
  finding.hosts = hosts.values;
  finding.one_of_hosts = hosts.values.size() > 1;
  finding.or_another_host = !found.SurelyRing() || found.ring == RingLinks::kEither;
  if (found.SurelyRing() && found.ring == RingLinks::kInto)
    finding.hosts.insert(finding.hosts.begin(), HostName(context, found.all[*found.from]));
  if (found.most_rate > 0)
    finding.network_bytes_per_s = {static_cast<std::int64_t>(found.least_rate),
                                   static_cast<std::int64_t>(found.most_rate)};
  finding.blamed = {Blamed(context, found, hosts)};
  finding.said.headline = {Say(found.first ? Word::kLinkFirst : Word::kLink,
                               {{"hosts", hosts}, {"ranks", Ranks{found.ranks}}, {"later", Ns{per_unit}}}),
                           Say(Word::kLinkCost, {{"blamed", Clauses{finding.blamed}}, {"cost", PartOf(s, price)}})};
  finding.said.brief = {Say(found.first ? Word::kLinkFirstBrief : Word::kLinkBrief, {{"hosts", hosts}})};
  if (s.per_step) finding.saves_ns_per_step = price;
  finding.covers_transfer = true;
  finding.rank = found.ranks.size() == 1 ? found.ranks[0] : -1;
  finding.said.evidence = {EvidenceOf(context, found)};
  if (found.from) {
    finding.said.action = {Say(Word::kLinkIntoAction, {{"before", HostBefore(context, found)}, {"hosts", hosts}})};
    if (!found.SurelyRing()) finding.said.action.push_back(Say(Word::kLinkElseBetweenAction, {{"hosts", hosts}}));
  } else if (finding.one_of_hosts) {
    finding.said.action = {Say(Word::kLinkOfSeveralAction, {{"hosts", hosts}})};
  } else {
    finding.said.action = {Say(Word::kLinkAction, {{"hosts", hosts}}), Say(Word::kLinkElseOthersAction)};
  }
  finding.explain.columns = {context.units_are_steps() ? "step" : "slice", "later_ns"};
  std::vector<std::size_t> order(found.behind_ns.size());
  for (std::size_t u = 0; u < order.size(); ++u) order[u] = u;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return found.behind_ns[a] > found.behind_ns[b]; });
  order.resize(std::min(order.size(), rules::kLinkRowsShown));
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
  const Clauses way{{Say(!b.empty() && found.direction == Direction::kBoth ? Word::kWayBetween
                         : !b.empty()                                      ? Word::kWayFromTo
                         : found.direction == Direction::kFrom             ? Word::kWayFrom
                         : found.direction == Direction::kTo               ? Word::kWayTo
                                                                           : Word::kWayToAndFrom,
                         {{"host", a}, {"other_host", If(!b.empty(), b)}})}};
  Finding finding;
  // One call's end says of none of its messages when it had come.
  finding.said.headline = {
      Say(found.several_ways ? Word::kLinkCalls : Word::kLinkMessages, {{"way", way},
                                                                        {"slow", Ns{found.slow_ns}},
                                                                        {"bytes", Size{found.bytes}},
                                                                        {"way_back", found.beside_the_way_back},
                                                                        {"others", Ns{found.others_ns}}}),
      Say(Word::kLinkMessagesCost, {{"cost", PartOf(s, found.behind_ns)}})};
  finding.said.brief = {Say(Word::kLinkMessagesBrief, {{"way", way}})};
  if (s.per_step) finding.saves_ns_per_step = found.behind_ns;
  finding.said.evidence = {Say(Word::kLinkMessagesEvidence, {{"slow_rate", Rate{found.slow_rate}},
                                                             {"others_rate", Rate{found.others_rate}},
                                                             {"slow_messages", Num{found.slow}},
                                                             {"messages", Num{found.compared}},
                                                             {"chance", Probability{found.p_value}}})};
  finding.said.action = {b.empty() ? Say(Word::kLinkAction, {{"hosts", Names{{a}}}})
                                   : Say(Word::kLinkWayAction, {{"way", way}})};
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
  const double least = rules::kWorthShare * static_cast<double>(analysis.summary.terms.Sum());
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
    finding.said.evidence.push_back(
        Say(Word::kLinkCollectivesEvidence,
            {{"brief", Clauses{of_collectives.said.brief}}, {"evidence", Clauses{of_collectives.said.evidence}}}));
    finding.saves_ns_per_step = std::max(finding.saves_ns_per_step, of_collectives.saves_ns_per_step);
    finding.covers_transfer = true;
  }
  finding.id = FindingId::kLinkSlow;
  finding.upper_bound = true;
  analysis.findings.push_back(std::move(finding));
}

}  // namespace lockstep::analysis
