#include "merge/clock/align.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <tuple>

#include "merge/clock/burst_knots.h"
#include "merge/clock/clock_map.h"
#include "merge/clock/comm_graph.h"
#include "merge/clock/corridor.h"
#include "merge/clock/domains.h"
#include "merge/clock/end_fit.h"
#include "merge/clock/fit.h"
#include "merge/parallel.h"
#include "merge/rules/clock.h"

namespace lockstep::merge {
namespace {

using enum schema::ClockMethod::Value;

constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();

struct Exchanges {
  // (file's rank, burst, transport) names a burst; values are bounds as seen from the domain.
  std::map<std::tuple<std::int32_t, std::uint32_t, std::uint8_t>, Burst> bursts;
};

class Aligner {
 public:
  Aligner(const std::vector<AlignRank>& ranks, ClockChoice choice, unsigned jobs) : choice_(choice), jobs_(jobs) {
    for (const AlignRank& rank : ranks) ranks_.push_back(&rank);
    std::stable_sort(ranks_.begin(), ranks_.end(),
                     [](const AlignRank* a, const AlignRank* b) { return a->rank < b->rank; });
  }
  Result<AlignResult> Run();

 private:
  void CollectExchanges();
  void CollectInstances();
  CommGraph Graph() const;
  void NumberDomains();
  void ChooseReference();
  void Transfers();
  bool FitFromBursts(std::size_t domain);
  void RelateByCollectives();
  bool FitFromEnds(std::size_t domain, const CommGraph::Mapped& mapped);
  bool FitFromCorridors(std::size_t domain);
  bool FitFromWall(std::size_t domain);
  void Anchor(std::size_t domain);
  const std::vector<InstanceBounds>& MappedInstances();
  void CheckEnds();
  void Fit(std::size_t domain, std::vector<OffsetKnot> knots, std::uint8_t method);
  void Check(std::size_t domain);
  void Finish(std::size_t domain);
  Error Refusal() const;
  void Emit();

  ClockChoice choice_;
  unsigned jobs_;
  std::vector<const AlignRank*> ranks_;
  std::vector<Domain> domains_;                                         // [0] is the reference.
  std::map<std::int32_t, std::size_t> domain_of_;                       // World rank -> domain.
  std::map<std::pair<std::size_t, std::size_t>, Exchanges> exchanges_;  // (domain, peer's domain)
  std::vector<std::int32_t> odd_ranks_;  // Ranks that are not on the clock of their domain.
  std::vector<InstanceBounds> mapped_instances_;
  std::vector<std::size_t> not_joined_;  // Mapped domains that are not in mapped_instances_ yet.
  std::vector<AlignLoss> ends_losses_;   // Per domain; kept apart so that threads need no lock.
  AlignResult result_;
};

void Aligner::CollectExchanges() {
  for (const AlignRank* rank : ranks_) {
    if (rank->bursts == nullptr) continue;
    const std::size_t own = domain_of_[rank->rank];
    for (std::size_t i = 0; i < rank->bursts->rows(); ++i) {
      const auto row = rank->bursts->Get(i);
      const auto peer = domain_of_.find(row.peer_rank);
      if (peer == domain_of_.end() || peer->second == own) continue;
      if (row.receive_ns < row.send_ns || row.peer_send_ns < row.peer_receive_ns) continue;
      const auto key = std::make_tuple(rank->rank, row.burst, row.transport);
      exchanges_[{own, peer->second}].bursts[key].exchanges.push_back(
          BoundsOfOwn(row.send_ns, row.peer_receive_ns, row.peer_send_ns, row.receive_ns));
      exchanges_[{peer->second, own}].bursts[key].exchanges.push_back(
          BoundsOfPeers(row.send_ns, row.peer_receive_ns, row.peer_send_ns, row.receive_ns));
    }
  }
}

// Chooses the lowest rank, unless it is one of a few imported ones that are unrelated to the others.
void Aligner::ChooseReference() {
  if (!std::all_of(domains_.begin(), domains_.end(), [](const Domain& d) { return d.imported; })) return;
  const std::vector<std::size_t> component = Graph().Components();
  std::vector<std::size_t> sizes(domains_.size(), 0);
  for (const std::size_t c : component) ++sizes[c];
  const auto largest = std::max_element(sizes.begin(), sizes.end()) - sizes.begin();
  std::rotate(domains_.begin(), domains_.begin() + largest, domains_.begin() + largest + 1);
  NumberDomains();
}

void Aligner::NumberDomains() {
  for (std::size_t d = 0; d < domains_.size(); ++d)
    for (const AlignRank* rank : domains_[d].ranks) domain_of_[rank->rank] = d;
}

CommGraph Aligner::Graph() const {
  std::vector<std::vector<const AlignRank*>> ranks;
  for (const Domain& domain : domains_) ranks.push_back(domain.ranks);
  return CommGraph(ranks);
}

void Aligner::CollectInstances() {
  ParallelFor(jobs_, domains_.size(), [&](std::size_t d) {
    std::vector<const std::vector<AlignCollective>*> lists;
    for (const AlignRank* rank : domains_[d].ranks) lists.push_back(&rank->collectives);
    domains_[d].instances = InstancesOf(lists);
  });
}

// The transfer of an operation took at most as long as the shortest stay of any of its members.
void Aligner::Transfers() {
  std::vector<std::pair<std::uint64_t, std::int64_t>> stays;
  const auto join = [&] {
    std::sort(stays.begin(), stays.end());
    stays.erase(
        std::unique(stays.begin(), stays.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
        stays.end());
  };
  std::size_t joined = 0;
  for (const Domain& domain : domains_) {
    for (const InstanceBounds& instance : domain.instances) stays.emplace_back(instance.key, instance.shortest_ns);
    if (stays.size() - joined < std::max(rules::kClockJoinRows, joined)) continue;
    join();
    joined = stays.size();
  }
  join();
  ParallelFor(jobs_, domains_.size(), [&](std::size_t d) {
    for (InstanceBounds& instance : domains_[d].instances) {
      const auto at = std::lower_bound(stays.begin(), stays.end(), std::pair{instance.key, INT64_MIN});
      instance.shortest_ns = at->second;
    }
  });
}

void Aligner::Fit(std::size_t d, std::vector<OffsetKnot> knots, std::uint8_t method) {
  Domain& domain = domains_[d];
  domain.knots = std::move(knots);
  DomainFit fit = FitKnots(domain.knots);
  if (!fit.gaps.empty()) NarrowGaps(CorridorsOf(domain.instances, MappedInstances()), &fit);
  domain.map.method = method;
  domain.map.knots = fit.Flatten(domain.begin_ns, domain.end_ns);
  domain.wide = fit.wide;
  domain.jumps = fit.gaps.size();
}

// Fits against the mapped domain with the most bursts; the reference wins ties (and is the only one in the usual star).
bool Aligner::FitFromBursts(std::size_t d) {
  const Exchanges* best = nullptr;
  std::size_t best_peer = 0;
  for (const auto& [edge, exchanges] : exchanges_) {
    if (edge.first != d || !domains_[edge.second].mapped) continue;
    if (best != nullptr && (best_peer == 0 || exchanges.bursts.size() <= best->bursts.size())) continue;
    best = &exchanges;
    best_peer = edge.second;
  }
  if (best == nullptr) return false;
  std::vector<Burst> bursts;
  for (const auto& [key, burst] : best->bursts) bursts.push_back(burst);
  std::vector<OffsetKnot> knots = KnotsOfBursts(bursts);
  if (best_peer != 0) {
    // One more hop: the peer's own offset and error are added.
    const ClockMap& peer = domains_[best_peer].map;
    for (OffsetKnot& knot : knots) {
      const std::int64_t at = knot.local_ns + knot.mid_ns();
      const std::int64_t offset = peer.OffsetAt(at), error = peer.ErrorAt(at);
      knot.low_ns += offset - error;
      knot.high_ns += offset + error;
    }
  }
  Fit(d, knots, kBursts);
  return true;
}

bool Aligner::FitFromCorridors(std::size_t d) {
  const std::vector<OffsetKnot> knots = KnotsOfCorridors(CorridorsOf(domains_[d].instances, MappedInstances()));
  if (knots.empty()) return false;
  Fit(d, knots, kCorridors);
  return true;
}

// Assumes that both sides' CLOCK_REALTIME show the same time.
bool Aligner::FitFromWall(std::size_t d) {
  const auto snapshots = [](const Domain& domain) {
    std::vector<std::pair<std::int64_t, std::int64_t>> pairs;  // Realtime, rank clock.
    for (const AlignRank* rank : domain.ranks) {
      if (rank->snapshots == nullptr) continue;
      for (std::size_t i = 0; i < rank->snapshots->rows(); ++i)
        pairs.emplace_back(rank->snapshots->realtime_ns[i], rank->snapshots->raw_ns[i]);
    }
    std::sort(pairs.begin(), pairs.end());
    return pairs;
  };
  const auto own = snapshots(domains_[d]), reference = snapshots(domains_[0]);
  if (own.empty() || reference.empty()) return false;
  ClockMap to_reference;  // Realtime -> reference clock.
  for (const auto& [realtime, raw] : reference) to_reference.knots.push_back({realtime, raw - realtime, 0, 0});
  Normalise(&to_reference.knots);
  domains_[d].map.method = kWallClock;
  for (const auto& [realtime, raw] : own)
    domains_[d].map.knots.push_back(
        {raw, to_reference.ToCluster(realtime) - raw, rules::kWallClockErrorNs, rules::kWallClockSlewPpb});
  Normalise(&domains_[d].map.knots);
  return true;
}

void Aligner::Check(std::size_t d) {
  Domain& domain = domains_[d];
  if (domain.map.method == kWallClock || domain.instances.empty()) return;
  const std::vector<Corridor> corridors = CorridorsOf(domain.instances, MappedInstances());
  const CorridorCheck check = ApplyCorridors(corridors, &domain.map);
  result_.corridors_checked += check.checked;
  result_.corridors_violated += check.violated;
  if (check.violated == 0) return;
  // The clock wanders faster than its bursts can show: fit again with the bounds that the collectives give in between,
  // then repair what is left.
  std::vector<OffsetKnot> knots = KnotsOfCorridors(corridors);
  knots.insert(knots.end(), domain.knots.begin(), domain.knots.end());
  std::stable_sort(knots.begin(), knots.end(),
                   [](const OffsetKnot& a, const OffsetKnot& b) { return a.local_ns < b.local_ns; });
  Fit(d, std::move(knots), domain.map.method);
  (void)ApplyCorridors(corridors, &domain.map);
  result_.losses.push_back({domain.leader(), Loss::kClockCorridor, check.violated,
                            "by up to " + std::to_string(check.worst_ns) + " ns beyond the fit's error"});
}

void Aligner::Finish(std::size_t d) {
  Domain& domain = domains_[d];
  domain.mapped = true;
  if (domain.wide > 0) result_.losses.push_back({domain.leader(), Loss::kClockBurstRejected, domain.wide, ""});
  if (domain.jumps > 0) result_.losses.push_back({domain.leader(), Loss::kClockStep, domain.jumps, ""});
  not_joined_.push_back(d);
  domain.knots = {};
}

const std::vector<InstanceBounds>& Aligner::MappedInstances() {
  std::size_t joined = mapped_instances_.size();
  for (const std::size_t d : not_joined_) {
    AddMapped(domains_[d].instances, domains_[d].map, &mapped_instances_);
    if (mapped_instances_.size() - joined < std::max(rules::kClockJoinRows, joined)) continue;
    JoinInstances(&mapped_instances_);
    joined = mapped_instances_.size();
  }
  if (!not_joined_.empty()) JoinInstances(&mapped_instances_);
  not_joined_.clear();
  return mapped_instances_;
}

// Fits against one mapped domain: the one with the least expected error among those with common operations.
bool Aligner::FitFromEnds(std::size_t d, const CommGraph::Mapped& mapped) {
  Domain& domain = domains_[d];
  for (const bool all : {false, true}) {
    for (const std::size_t p : mapped.Partners(d, all)) {
      const Domain& partner = domains_[p];
      std::vector<EndSample> samples;
      ForEachShared(domain.instances, partner.instances, [&](const InstanceBounds& own, const InstanceBounds& other) {
        if (own.gpu == 0 || other.gpu == 0) return;
        const std::int64_t end = own.end_ns(), error = partner.map.ErrorAt(other.end_ns());
        samples.push_back({end, partner.map.ToCluster(other.end_ns()) - end,
                           partner.map.ToCluster(other.last_begin_ns) - own.first_end_ns,
                           partner.map.ToCluster(other.first_end_ns) - own.last_begin_ns, error, own.shortest_ns,
                           own.sort, own.hard != 0 && other.hard != 0});
      });
      if (samples.empty()) continue;
      EndFit fit = FitEnds(std::move(samples), domain.begin_ns, domain.end_ns);
      domain.map.method = kCorridors;
      domain.map.knots = std::move(fit.knots);
      domain.by_ends = true;
      if (std::max(fit.skew_ns, fit.systematic_ns) >= rules::kEndSkewToldNs)
        ends_losses_[d] = {domain.leader(), Loss::kClockCorridor, fit.samples,
                           "kernels of one collective end " + std::to_string(std::max(fit.skew_ns, fit.systematic_ns)) +
                               " ns apart from rank " + std::to_string(partner.leader()) + "'s"};
      return true;
    }
  }
  return false;
}

// A component of its own: its lowest rank keeps its times.
void Aligner::Anchor(std::size_t d) {
  Domain& domain = domains_[d];
  domain.map.method = choice_ == ClockChoice::kWall ? kWallClock : kNone;
  domain.map.knots = {{domain.begin_ns, 0, choice_ == ClockChoice::kWall ? rules::kWallClockErrorNs : 0, 0}};
}

// Goes layer by layer from the mapped domains: GPU collectives first, because their ends are exact; then the corridors
// of the others; then imported components that are related to nothing.
void Aligner::RelateByCollectives() {
  const auto left = [&] {
    std::vector<std::size_t> unmapped;
    for (std::size_t d = 1; d < domains_.size(); ++d)
      if (!domains_[d].mapped) unmapped.push_back(d);
    return unmapped;
  };
  if (left().empty()) return;
  Transfers();
  const CommGraph graph = Graph();
  bool anchored = false;
  ends_losses_.assign(domains_.size(), {-1, Loss::kClockCorridor, 0, ""});
  // A domain that is fitted after an anchor was set could not be fitted without it.
  const auto finish = [&](std::size_t d) {
    domains_[d].unrelated = anchored && choice_ != ClockChoice::kWall;
    Finish(d);
  };
  for (std::vector<std::size_t> unmapped = left(); !unmapped.empty(); unmapped = left()) {
    std::vector<std::int64_t> errors;
    for (const Domain& domain : domains_)
      errors.push_back(domain.mapped ? domain.map.ErrorAt(domain.begin_ns + (domain.end_ns - domain.begin_ns) / 2)
                                     : -1);
    const CommGraph::Mapped mapped(graph, errors);
    std::vector<std::uint8_t> done(unmapped.size());
    ParallelFor(jobs_, unmapped.size(), [&](std::size_t i) { done[i] = FitFromEnds(unmapped[i], mapped); });
    bool progress = false;
    for (std::size_t i = 0; i < unmapped.size(); ++i)
      if (done[i] != 0) finish(unmapped[i]), progress = true;
    for (std::size_t i = 0; !progress && i < unmapped.size(); ++i)
      if (FitFromCorridors(unmapped[i])) finish(unmapped[i]), progress = true;
    if (progress) continue;
    const auto alone =
        std::find_if(unmapped.begin(), unmapped.end(), [&](std::size_t d) { return domains_[d].imported; });
    if (alone == unmapped.end()) break;
    anchored = true;
    Anchor(*alone);
    finish(*alone);
  }
  CheckEnds();
  for (AlignLoss& loss : ends_losses_)
    if (loss.count > 0) result_.losses.push_back(std::move(loss));
  for (const Domain& domain : domains_) {
    if (!domain.unrelated) continue;
    for (const AlignRank* rank : domain.ranks)
      result_.losses.push_back({rank->rank, Loss::kClockUnbounded, 1,
                                "no collective relates its clock to rank " + std::to_string(domains_.front().leader()) +
                                    "; its times are used unchanged"});
  }
}

// Each fit used one partner; the bounds from all other partners must agree with it.
void Aligner::CheckEnds() {
  if (std::none_of(domains_.begin(), domains_.end(), [](const Domain& d) { return d.by_ends; })) return;
  const std::vector<InstanceBounds>& mapped = MappedInstances();
  std::vector<CorridorCheck> checks(domains_.size());
  ParallelFor(jobs_, domains_.size(), [&](std::size_t d) {
    Domain& domain = domains_[d];
    if (domain.by_ends) checks[d] = ApplyCorridors(CorridorsOf(domain.instances, mapped), &domain.map);
  });
  for (std::size_t d = 0; d < checks.size(); ++d) {
    result_.corridors_checked += checks[d].checked;
    result_.corridors_violated += checks[d].violated;
    if (checks[d].violated > 0)
      result_.losses.push_back({domains_[d].leader(), Loss::kClockCorridor, checks[d].violated,
                                "by up to " + std::to_string(checks[d].worst_ns) + " ns beyond the fit's error"});
  }
}

Error Aligner::Refusal() const {
  std::string ranks;
  std::size_t count = 0;
  for (const Domain& domain : domains_) {
    if (domain.mapped) continue;
    for (const AlignRank* rank : domain.ranks)
      if (++count <= rules::kUnrelatedRanksNamed) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank->rank);
  }
  if (count > rules::kUnrelatedRanksNamed)
    ranks += " and " + std::to_string(count - rules::kUnrelatedRanksNamed) + " more";
  return {
      ErrorCode::kUnsupported,
      "the clock of " + std::to_string(count) + (count == 1 ? " rank" : " ranks") +
          " cannot be related to that of rank " + std::to_string(domains_.front().leader()) +
          ": no clock exchange and no collective in common",
      (count == 1 ? "rank " : "ranks ") + ranks,
      "run with the clock service on (lockstep run without --clock off, every rank under mpirun), or accept wall-clock "
      "accuracy with --clock wall"};
}

void Aligner::Emit() {
  std::map<std::int32_t, const Domain*> by_rank;
  for (const Domain& domain : domains_)
    for (const AlignRank* rank : domain.ranks) by_rank.try_emplace(rank->rank, &domain);
  for (const auto& [rank, domain] : by_rank) {
    const bool leads = rank == domain->leader();
    for (const MapKnot& knot : domain->map.knots)
      result_.clock.Append({rank, knot.local_ns, knot.offset_ns, domain->unrelated ? kUnbounded : knot.base_error_ns,
                            domain->unrelated ? 0 : knot.slew_ppb,
                            leads || domain->map.method == kNone ? domain->map.method : std::uint8_t{kSameDomain}});
  }
}

Result<AlignResult> Aligner::Run() {
  if (ranks_.empty()) return std::move(result_);
  std::tie(domains_, odd_ranks_) = MakeDomains(ranks_);
  NumberDomains();
  if (choice_ != ClockChoice::kOff && domains_.size() > 1) ChooseReference();
  if (choice_ == ClockChoice::kOff) {
    for (Domain& domain : domains_) domain.map.knots = {{domain.begin_ns, 0, 0, 0}};
    Emit();
    return std::move(result_);
  }
  for (const std::int32_t rank : odd_ranks_)
    result_.losses.push_back(
        {rank, Loss::kClockDomainSplit, 1, "differs from its neighbours by more than the exchange's error"});
  Domain& reference = domains_.front();
  reference.map.method = kReference;
  reference.map.knots = {{reference.begin_ns, 0, 0, 0}};
  reference.mapped = true;
  if (domains_.size() > 1) {
    CollectExchanges();
    CollectInstances();
    Finish(0);
  }
  // Bursts first, in the order of their reach, then collectives; each newly mapped domain may help the next.
  const auto sweep = [&](bool (Aligner::*fit)(std::size_t), bool check) {
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t d = 1; d < domains_.size(); ++d) {
        if (domains_[d].mapped || !(this->*fit)(d)) continue;
        if (check) Check(d);
        Finish(d);
        progress = true;
      }
    }
  };
  sweep(&Aligner::FitFromBursts, true);
  RelateByCollectives();
  if (choice_ == ClockChoice::kWall) sweep(&Aligner::FitFromWall, false);
  if (std::any_of(domains_.begin(), domains_.end(), [](const Domain& domain) { return !domain.mapped; }))
    return Refusal();
  Emit();
  return std::move(result_);
}

}  // namespace

Result<AlignResult> AlignClocks(const std::vector<AlignRank>& ranks, ClockChoice choice, unsigned jobs) {
  return Aligner(ranks, choice, jobs).Run();
}

}  // namespace lockstep::merge
