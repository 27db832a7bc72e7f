// Reports that nothing moved between hosts for a second and more: all ranks of a collective were in its call, and it
// went on only then. It is said of the hosts whose ranks take part; others may have gone on. What a rank does late, a
// checkpoint say, is no such thing: it comes to the call after the others.

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "analysis/rules/network.h"
#include "analysis/words/render.h"
#include "core/collective.h"
#include "core/rules/common.h"
#include "core/schema_enums.h"

namespace lockstep::analysis {
namespace {

using HostNames = std::set<std::string_view>;

struct NetworkStall {
  std::int64_t begin_ns = 0, end_ns = 0;
  std::vector<std::size_t> collectives;
  HostNames hosts;      // One of which was cut.
  HostNames took_part;  // In the collectives; of others nothing is known.
  std::int64_t length_ns() const { return end_ns - begin_ns; }
};

class CutSearch {
 public:
  explicit CutSearch(const Context& context) : context_(context), t_(context.tables().collectives) {}

  // In order of time.
  std::vector<NetworkStall> Find() {
    std::vector<NetworkStall> stalls;
    for (const std::size_t c : Candidates())
      if (std::optional<NetworkStall> stall = StallOf(c)) stalls.push_back(std::move(*stall));
    std::sort(stalls.begin(), stalls.end(),
              [](const NetworkStall& a, const NetworkStall& b) { return a.begin_ns < b.begin_ns; });
    std::vector<NetworkStall> merged;
    for (NetworkStall& stall : stalls) {
      if (merged.empty() || stall.begin_ns >= merged.back().end_ns) {
        merged.push_back(std::move(stall));
        continue;
      }
      // Several operations wait for the same: it is a host that takes part in all of them.
      NetworkStall& one = merged.back();
      one.took_part.insert(stall.took_part.begin(), stall.took_part.end());
      one.end_ns = std::max(one.end_ns, stall.end_ns);
      one.collectives.insert(one.collectives.end(), stall.collectives.begin(), stall.collectives.end());
      HostNames common;
      std::set_intersection(one.hosts.begin(), one.hosts.end(), stall.hosts.begin(), stall.hosts.end(),
                            std::inserter(common, common.end()));
      if (!common.empty()) one.hosts = std::move(common);
    }
    for (NetworkStall& stall : merged) {
      LeaveOutWhoseNetworkWorks(stall);
      LeaveOutWhoExchangedMessages(stall);
    }
    std::erase_if(merged, [this](const NetworkStall& stall) {
      return stall.hosts.empty() || std::any_of(stall.collectives.begin(), stall.collectives.end(),
                                                [this](std::size_t c) { return first_.at(t_.comm_id[c]) == c; });
    });
    return merged;
  }

 private:
  HostNames HostsOf(std::size_t collective) const {
    const auto& members = context_.tables().collective_ranks;
    HostNames hosts;
    for (std::size_t m = context_.timeline().FirstMember(collective);
         m < context_.timeline().FirstMember(collective + 1); ++m)
      if (const std::string_view host = HostOf(members.rank[m]); !host.empty()) hosts.insert(host);
    return hosts;
  }

  // Collectives that took far longer after their last arrival than their like, the longest first.
  std::vector<std::size_t> Candidates() {
    std::map<std::tuple<std::uint64_t, std::uint8_t, std::uint64_t>, std::vector<std::size_t>> alike;
    for (std::size_t c = 0; c < t_.rows(); ++c) {
      const auto [at, fresh] = first_.try_emplace(t_.comm_id[c], c);
      if (!fresh && t_.last_arrival_ns[c] < t_.last_arrival_ns[at->second]) at->second = c;
      if (t_.seen[c] >= t_.expected[c] && t_.seen[c] >= 2 && !t_.mismatch[c] && !t_.violation[c])
        alike[{t_.comm_id[c], t_.kind[c], t_.bytes[c]}].push_back(c);
    }
    std::vector<std::size_t> candidates;
    for (const auto& [key, instances] : alike) {
      std::vector<std::int64_t> lengths;
      for (const std::size_t c : instances) lengths.push_back(LengthOf(c));
      if (instances.size() <= rules::kFewest) continue;  // One of them is the stall.
      const auto median = static_cast<double>(LowerMedian(std::move(lengths)));
      const std::int64_t least =
          std::max(rules::kLinkCutStallNs, static_cast<std::int64_t>(rules::kStallTimes * median));
      for (const std::size_t c : instances)
        if (LengthOf(c) >= least) candidates.push_back(c);
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [&](std::size_t a, std::size_t b) { return LengthOf(a) > LengthOf(b); });
    candidates.resize(std::min(candidates.size(), rules::kLinkCutCandidates));
    return candidates;
  }

  std::int64_t LengthOf(std::size_t collective) const {
    return std::max<std::int64_t>(0, t_.end_ns[collective] - t_.last_arrival_ns[collective]);
  }

  // While all its members were in the call that completes it. One that left long before the others, as the root of a
  // broadcast does, waits for nobody.
  std::optional<NetworkStall> StallOf(std::size_t c) {
    const auto& members = context_.tables().collective_ranks;
    std::int64_t entered_ns = t_.last_arrival_ns[c];
    const std::size_t begin = context_.timeline().FirstMember(c), end = context_.timeline().FirstMember(c + 1);
    if (t_.mode[c] != static_cast<std::uint8_t>(CollectiveMode::kBlocking))
      for (std::size_t m = begin; m < end; ++m) {
        const std::optional<std::int64_t> waits_ns = WaitEntry(members.rank[m], members.row[m]);
        if (!waits_ns) return std::nullopt;
        entered_ns = std::max(entered_ns, *waits_ns);
      }
    std::int64_t left_ns = INT64_MAX;
    std::size_t stalled = 0;
    for (std::size_t m = begin; m < end; ++m) {
      if (members.end_high_ns[m] - entered_ns < rules::kLinkCutStallNs) continue;
      left_ns = std::min(left_ns, members.end_high_ns[m]);
      ++stalled;
    }
    HostNames hosts = HostsOf(c);
    if (!HalfOf(stalled, end - begin) || stalled == 0 || hosts.size() < 2) return std::nullopt;
    return NetworkStall{entered_ns, left_ns, {c}, hosts, hosts};
  }

  // When the call that completes an operation was entered, cluster time. A kernel has none: it runs from its arrival.
  std::optional<std::int64_t> WaitEntry(std::int32_t rank, std::uint32_t row) {
    auto at = entries_.find(rank);
    if (at == entries_.end()) {
      at = entries_.emplace(rank, std::vector<std::int64_t>()).first;
      if (const Result<schema::RankTables> read = context_.ReadActivity(rank); read.ok()) {
        const merge::ClockMap clock(context_.tables().clock, rank);
        const auto& own = read.value().collectives;
        for (std::size_t i = 0; i < own.rows(); ++i)
          at->second.push_back(own.kernel[i] != schema::kNone            ? INT64_MIN
                               : own.wait_begin_ns[i] == schema::kNoTime ? schema::kNoTime
                                                                         : clock.ToCluster(own.wait_begin_ns[i]));
      }
    }
    if (row >= at->second.size() || at->second[row] == schema::kNoTime) return std::nullopt;
    return at->second[row];
  }

  // What moved so close to the begin or end of a stall does not show that the network worked in between.
  std::int64_t MarginOf(const NetworkStall& stall, std::size_t collective) const {
    return static_cast<std::int64_t>(rules::kLittle * static_cast<double>(stall.length_ns())) + t_.error_ns[collective];
  }

  // Hosts that exchanged data with each other meanwhile.
  void LeaveOutWhoseNetworkWorks(NetworkStall& stall) const {
    for (std::size_t c = 0; c < t_.rows(); ++c) {
      const std::int64_t margin = MarginOf(stall, c);
      if (t_.last_arrival_ns[c] < stall.begin_ns + margin || t_.end_ns[c] > stall.end_ns - margin) continue;
      const HostNames hosts = HostsOf(c);
      if (hosts.size() < 2) continue;
      for (const std::string_view host : hosts) stall.hosts.erase(host);
    }
  }

  // Hosts between which a message was both sent and received meanwhile. A send alone says nothing: it ends when its
  // bytes are in a buffer.
  void LeaveOutWhoExchangedMessages(NetworkStall& stall) const {
    std::set<std::int32_t> ranks;
    const schema::TlP2pPairs& pairs = context_.tables().p2p_pairs;
    for (std::size_t i = 0; i < pairs.rows(); ++i) {
      const std::string_view from = HostOf(pairs.source_rank[i]), to = HostOf(pairs.destination_rank[i]);
      if (pairs.matched[i] == 0 || from == to || from.empty() || to.empty()) continue;
      if (!stall.hosts.contains(from) && !stall.hosts.contains(to)) continue;
      ranks.insert({pairs.source_rank[i], pairs.destination_rank[i]});
    }
    // Communicator, source, destination, tag, number.
    using Message = std::tuple<std::uint64_t, std::int32_t, std::int32_t, std::int32_t, std::uint64_t>;
    std::set<Message> sent, received;
    for (const std::int32_t rank : ranks) {
      const Result<schema::RankTables> read = context_.ReadActivity(rank);
      if (!read.ok()) continue;
      const merge::ClockMap clock(context_.tables().clock, rank);
      std::map<std::uint32_t, std::uint64_t> ids;
      const auto& comms = read.value().comms;
      for (std::size_t i = 0; i < comms.rows(); ++i)
        if (comms.unidentified[i] == 0) ids[comms.comm[i]] = comms.global_id[i];
      const auto& p2p = read.value().p2p;
      for (std::size_t i = 0; i < p2p.rows(); ++i) {
        const std::int32_t peer = p2p.peer_world_rank[i];
        const auto id = ids.find(p2p.comm[i]);
        if (peer < 0 || id == ids.end() || p2p.end_ns[i] == schema::kNoTime ||
            p2p.outcome[i] != static_cast<std::uint8_t>(schema::RequestOutcome::kCompleted))
          continue;
        const std::int64_t margin = MarginOf(stall, stall.collectives[0]);
        if (p2p.direction[i] == static_cast<std::uint8_t>(schema::Direction::kSend)) {
          if (clock.ToCluster(p2p.begin_ns[i]) >= stall.begin_ns + margin)
            sent.insert({id->second, rank, peer, p2p.tag[i], p2p.seq[i]});
        } else if (clock.ToCluster(p2p.end_ns[i]) <= stall.end_ns - margin) {
          received.insert({id->second, peer, rank, p2p.tag[i], p2p.seq[i]});
        }
      }
    }
    for (const Message& message : sent) {
      const std::string_view from = HostOf(std::get<1>(message)), to = HostOf(std::get<2>(message));
      if (from == to || !received.contains(message)) continue;
      stall.hosts.erase(from);
      stall.hosts.erase(to);
    }
  }

  std::string_view HostOf(std::int32_t rank) const {
    const std::size_t p = context_.Position(rank);
    return p == kNowhere ? std::string_view{}
                         : context_.timeline().Text(context_.tables().ranks.node[context_.RankRow(p)]);
  }

  const Context& context_;
  const schema::TlCollectives& t_;
  std::map<std::int32_t, std::vector<std::int64_t>> entries_;
  // By communicator: its first collective may make connections, and others wait for it.
  std::map<std::uint64_t, std::size_t> first_;
};

// The names of a few; of many only how many they are.
Value NamesOr(Clause many, std::vector<std::string> names) {
  return names.size() > rules::kLinkCutNames ? Value(Clauses{{std::move(many)}}) : Value(Names{std::move(names)});
}

// What stood still, as far as it is known: hosts that took no part may have gone on, and of those that did some may
// have exchanged other data.
Clause WhatStood(const HostNames& took_part, const HostNames& suspected, std::int64_t nodes, std::int64_t lost_ns) {
  const auto number = static_cast<std::int64_t>(took_part.size());
  const bool narrowed = suspected.size() < took_part.size();
  if (number >= nodes) return Say(narrowed ? Word::kCutAllStoodBrief : Word::kCutAllBrief, {{"lost", Ns{lost_ns}}});
  return Say(narrowed ? Word::kCutStoodBrief : Word::kCutBrief,
             {{"took_part", NamesOr(Say(Word::kCutManyOf, {{"number", Index{number}}, {"nodes", Index{nodes}}}),
                                    {took_part.begin(), took_part.end()})},
              {"lost", Ns{lost_ns}}});
}

}  // namespace

void FindLinkCuts(const Context& context, Analysis& analysis) {
  if (analysis.run.nodes.value_or(0) < 2 || context.units().empty()) return;
  const std::vector<NetworkStall> stalls = CutSearch(context).Find();
  // More of them are the usual state of this run, not a cut.
  if (stalls.empty() || stalls.size() > rules::kFewest) return;
  const auto& t = context.tables().collectives;
  const std::int64_t begin_ns = context.units().front().window.begin;
  const std::int64_t recorded_ns = context.recorded_ns();
  std::int64_t lost_ns = 0;
  Finding finding;
  finding.id = FindingId::kLinkCut;
  finding.explain.columns = {"step", "from_ns", "stalled_ns", "collectives", "bytes"};
  std::vector<std::string> times;
  HostNames hosts = stalls[0].hosts, took_part;
  for (std::size_t i = 0; i < stalls.size(); ++i) {
    const NetworkStall& stall = stalls[i];
    lost_ns += stall.length_ns();
    hosts.insert(stall.hosts.begin(), stall.hosts.end());
    took_part.insert(stall.took_part.begin(), stall.took_part.end());
    std::uint64_t bytes = 0;
    for (const std::size_t c : stall.collectives) bytes += t.bytes[c];
    const std::int64_t step = t.step[stall.collectives[0]];
    finding.explain.rows.push_back({step, stall.begin_ns - begin_ns, stall.length_ns(),
                                    static_cast<std::int64_t>(stall.collectives.size()),
                                    static_cast<std::int64_t>(bytes)});
    times.push_back(Told(step >= 0 ? Word::kCutInStep : Word::kCutAfterBegin,
                         {{"step", Index{step}}, {"from", Ns{std::max<std::int64_t>(0, stall.begin_ns - begin_ns)}}}));
  }
  std::vector<std::string> names;
  for (const std::string_view host : hosts) names.emplace_back(host);
  finding.hosts = names;
  finding.one_of_hosts = names.size() > 1;
  finding.said.brief = {WhatStood(took_part, hosts, *analysis.run.nodes, lost_ns)};
  const Value suspects =
      NamesOr(Say(Word::kCutOneOf, {{"number", Index{static_cast<std::int64_t>(names.size())}}}), names);
  const double share = static_cast<double>(lost_ns) / static_cast<double>(std::max(lost_ns, recorded_ns));
  finding.said.headline = {
      Say(Word::kCut, {{"stood", Clauses{finding.said.brief}}, {"times", Names{std::move(times)}}}),
      Say(Word::kCutOf, {{"suspects", suspects}, {"several", names.size() > 1}}),
      Say(Word::kCutShare, {{"share", Share{share}}, {"recorded", Ns{recorded_ns}}})};
  const std::size_t longest = stalls[0].collectives[0];
  std::vector<std::int64_t> others;
  for (std::size_t c = 0; c < t.rows(); ++c)
    if (t.comm_id[c] == t.comm_id[longest] && t.kind[c] == t.kind[longest] && t.bytes[c] == t.bytes[longest])
      others.push_back(std::max<std::int64_t>(0, t.end_ns[c] - t.last_arrival_ns[c]));
  const auto count = static_cast<std::int64_t>(others.size());
  finding.said.evidence = {
      Say(Word::kCutEvidence, {{"operation", std::string(Name(static_cast<CollectiveKind>(t.kind[longest])))},
                               {"bytes", Size{t.bytes[longest]}},
                               {"count", Num{count}},
                               {"typical", Ns{LowerMedian(std::move(others))}}})};
  finding.said.action = {Say(Word::kCutAction, {{"suspects", suspects}})};
  // A longer run is none the worse for it.
  if (static_cast<double>(lost_ns) < rules::kWorthShare * static_cast<double>(recorded_ns))
    analysis.remarks.push_back(Concatenated(finding.said.headline) + ".");
  else
    analysis.findings.push_back(std::move(finding));
}

}  // namespace lockstep::analysis
