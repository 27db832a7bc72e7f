#include "merge/clock/align.h"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <tuple>

#include "merge/clock/burst_knots.h"
#include "merge/clock/clock_map.h"
#include "merge/clock/corridor.h"
#include "merge/clock/fit.h"

namespace lockstep {
namespace {

enum Method : std::uint8_t { kReference = 0, kSameDomain = 1, kBursts = 2, kCorridors = 3, kNone = 4, kWallClock = 5 };

// Without the system's own estimate (an unsynchronised machine reports 16 s): what NTP keeps within.
constexpr std::int64_t kWallErrorNs = 10'000'000;
// Two clocks that differ by more than this within one domain are not one clock.
constexpr std::int64_t kSameClockNs = 1'000;

struct Domain {
  std::vector<const AlignRank*> ranks;  // By rank.
  std::int64_t begin_ns = 0, end_ns = -1;
  ClockMap map;
  bool mapped = false;
  std::vector<OffsetKnot> knots;  // What the map was fitted to.
  std::uint64_t wide = 0, jumps = 0;
  std::vector<InstanceBounds> instances;

  std::int32_t leader() const { return ranks.front()->rank; }
};

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
  void MakeDomains();
  void CollectExchanges();
  void CollectInstances();
  bool FitFromBursts(std::size_t domain);
  bool FitFromCorridors(std::size_t domain);
  bool FitFromWall(std::size_t domain);
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
  std::vector<std::int32_t> odd_ranks_;                                 // Not on the clock of their domain.
  std::vector<InstanceBounds> mapped_instances_;
  AlignResult result_;
};

// Ranks whose check against a rank of the same domain failed.
std::vector<std::int32_t> OddRanks(const std::vector<const AlignRank*>& ranks) {
  std::vector<std::int32_t> odd;
  for (const AlignRank* rank : ranks) {
    if (rank->bursts == nullptr) continue;
    for (std::size_t i = 0; i < rank->bursts->rows(); ++i) {
      const auto row = rank->bursts->Get(i);
      if (row.purpose != 1) continue;
      const OffsetBounds bounds = BoundsOfOwn(row.send_ns, row.peer_receive_ns, row.peer_send_ns, row.receive_ns);
      if (bounds.low_ns <= kSameClockNs && bounds.high_ns >= -kSameClockNs) continue;
      odd.push_back(rank->rank);
      break;
    }
  }
  return odd;
}

void Aligner::MakeDomains() {
  odd_ranks_ = OddRanks(ranks_);
  std::map<std::string, std::size_t> index;
  for (const AlignRank* rank : ranks_) {
    const bool odd = std::binary_search(odd_ranks_.begin(), odd_ranks_.end(), rank->rank);
    const std::string name = rank->domain.empty() || odd ? "rank " + std::to_string(rank->rank) : rank->domain;
    const auto [at, fresh] = index.try_emplace(name, domains_.size());
    if (fresh) domains_.emplace_back();
    Domain& domain = domains_[at->second];
    domain.ranks.push_back(rank);
    domain_of_.try_emplace(rank->rank, at->second);
    if (rank->begin_ns == 0 && rank->end_ns == 0) continue;
    if (domain.begin_ns > domain.end_ns) {
      domain.begin_ns = rank->begin_ns;
      domain.end_ns = rank->end_ns;
    }
    domain.begin_ns = std::min(domain.begin_ns, rank->begin_ns);
    domain.end_ns = std::max(domain.end_ns, rank->end_ns);
  }
}

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

void Aligner::CollectInstances() {
  tbb::task_arena arena(jobs_ == 0 ? tbb::task_arena::automatic : static_cast<int>(jobs_));
  arena.execute([&] {
    tbb::parallel_for(std::size_t{0}, domains_.size(), [&](std::size_t d) {
      std::vector<const std::vector<AlignCollective>*> lists;
      for (const AlignRank* rank : domains_[d].ranks) lists.push_back(&rank->collectives);
      domains_[d].instances = InstancesOf(lists);
    });
  });
}

void Aligner::Fit(std::size_t d, std::vector<OffsetKnot> knots, std::uint8_t method) {
  Domain& domain = domains_[d];
  domain.knots = std::move(knots);
  DomainFit fit = FitKnots(domain.knots);
  if (!fit.gaps.empty()) NarrowGaps(CorridorsOf(domain.instances, mapped_instances_), &fit);
  domain.map.method = method;
  domain.map.knots = fit.Flatten(domain.begin_ns, domain.end_ns);
  domain.wide = fit.wide;
  domain.jumps = fit.gaps.size();
}

// Against the mapped domain with the most bursts; the reference wins ties (and is alone in the usual star).
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
    // One more hop: the peer's own offset and error on top.
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
  const std::vector<OffsetKnot> knots = KnotsOfCorridors(CorridorsOf(domains_[d].instances, mapped_instances_));
  if (knots.empty()) return false;
  Fit(d, knots, kCorridors);
  return true;
}

// Both sides' CLOCK_REALTIME is taken for the same time.
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
    domains_[d].map.knots.push_back({raw, to_reference.ToCluster(realtime) - raw, kWallErrorNs, 1000});
  Normalise(&domains_[d].map.knots);
  return true;
}

void Aligner::Check(std::size_t d) {
  Domain& domain = domains_[d];
  if (domain.map.method == kWallClock || domain.instances.empty()) return;
  const std::vector<Corridor> corridors = CorridorsOf(domain.instances, mapped_instances_);
  const CorridorCheck check = ApplyCorridors(corridors, &domain.map);
  result_.corridors_checked += check.checked;
  result_.corridors_violated += check.violated;
  if (check.violated == 0) return;
  // The clock wanders faster than its bursts can show: fit again with what the
  // collectives prove in between, then repair what is left.
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
  AddMapped(domain.instances, domain.map, &mapped_instances_);
  domain.instances = {};
  domain.knots = {};
}

Error Aligner::Refusal() const {
  std::string ranks;
  std::size_t count = 0;
  for (const Domain& domain : domains_) {
    if (domain.mapped) continue;
    for (const AlignRank* rank : domain.ranks)
      if (++count <= 8) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank->rank);
  }
  if (count > 8) ranks += " and " + std::to_string(count - 8) + " more";
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
      result_.clock.Append({rank, knot.local_ns, knot.offset_ns, knot.base_error_ns, knot.slew_ppb,
                            leads || domain->map.method == kNone ? domain->map.method : std::uint8_t{kSameDomain}});
  }
}

Result<AlignResult> Aligner::Run() {
  if (ranks_.empty()) return std::move(result_);
  MakeDomains();
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
  // Bursts first, in the order of their reach; then corridors, nearest first by
  // rank; each newly mapped domain may help the next.
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
  sweep(&Aligner::FitFromCorridors, false);
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

}  // namespace lockstep
