#include "analysis/replay/questions/delays.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <unordered_map>
#include <utility>

#include "analysis/replay/graph/structure.h"
#include "analysis/rules/replay.h"

namespace lockstep::replay {
namespace {

constexpr std::uint32_t kNoWait = kNone;

// A part of one rank's time, found backwards from its last operation.
struct Part {
  std::uint32_t operation;  // kNone for a wait.
  std::uint32_t wait;       // kNone: not waiting.
  std::int64_t ns;
};

class Finder {
 public:
  Finder(const RecordedRun& run, const Job& job, const Schedule& schedule)
      : run_(run), job_(job), operations_(job.graph.operations()), schedule_(schedule) {
    wait_of_.assign(operations_.size(), kNoWait);
    before_ = PrecedingOnLane(job.graph, [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(schedule_.begin_ns[a], schedule_.end_ns[a]) <
             std::pair(schedule_.begin_ns[b], schedule_.end_ns[b]);
    });
    FindMembers();
    for (const Graph::Need& need : job.graph.needs())
      if (job.operations[need.earlier].rank != job.operations[need.operation].rank)
        offered_[need.earlier].push_back(job.operations[need.operation].rank);
  }

  Delays Find() {
    FindWaits();
    Explain();
    return std::move(result_);
  }

 private:
  void FindMembers() {
    everyone_.assign(run_.collectives.size(), false);
    for (std::size_t c = 0; c < run_.collectives.size(); ++c)
      everyone_[c] = run_.collectives[c].members >= run_.ranks.size();
    std::vector<bool> selective(run_.collectives.size(), false);
    const auto for_each_member = [&](auto&& take) {
      for (std::uint32_t i = 0; i < operations_.size(); ++i) {
        const JobOperation& about = job_.operations[i];
        if (about.role == Role::kMember && about.collective != kNone) take(i, about);
      }
    };
    for_each_member([&](std::uint32_t i, const JobOperation& about) {
      const Operation& member = operations_[i];
      if (!member.waits || !member.awaited || member.peers != kNone) selective[about.collective] = true;
    });
    for_each_member([&](std::uint32_t i, const JobOperation& about) {
      if (selective[about.collective])
        selective_[about.collective].emplace_back(about.rank, i);
      else if (!everyone_[about.collective])
        groups_[about.collective].push_back(about.rank);
    });
    for (auto& [collective, ranks] : groups_) std::sort(ranks.begin(), ranks.end());
    for (auto& [collective, members] : selective_) std::sort(members.begin(), members.end());
  }

  // Whether the member and that of `rank` cannot leave without each other, or one of them not without the other: then
  // the collective is a synchronisation of the two.
  bool Synchronises(std::uint32_t member, std::uint32_t rank) const {
    const std::uint32_t collective = job_.operations[member].collective;
    if (const auto at = selective_.find(collective); at != selective_.end()) {
      const auto found = std::lower_bound(at->second.begin(), at->second.end(), std::pair(rank, std::uint32_t{0}));
      if (found == at->second.end() || found->first != rank) return false;
      return WaitsFor(member, found->second) || WaitsFor(found->second, member);
    }
    if (everyone_[collective]) return true;
    const auto at = groups_.find(collective);
    return at != groups_.end() && std::binary_search(at->second.begin(), at->second.end(), rank);
  }

  bool WaitsFor(std::uint32_t member, std::uint32_t other) const {
    const Operation& operation = operations_[member];
    if (!operation.waits || operation.peers == kNone) return operation.waits && operations_[other].awaited;
    for (std::uint32_t set = operation.peers; set != kNone; set = job_.graph.AlsoOf(set)) {
      const std::span<const std::uint32_t> peers = job_.graph.PeersOf(set);
      if (std::find(peers.begin(), peers.end(), other) != peers.end()) return true;
    }
    return false;
  }

  std::uint32_t LastOf(std::uint32_t member) const { return WaitedFor(job_.graph, schedule_, member); }
  std::int64_t ArrivedNs(std::uint32_t member) const { return schedule_.begin_ns[LastOf(member)]; }

  // The collective's member of this rank for which `i` waited: it is the cause, through operations without a lane or a
  // duration of their own.
  std::uint32_t MemberBehind(std::uint32_t i) const {
    std::uint32_t at = schedule_.cause[i];
    for (int hops = 0; at != kNone && hops < rules::kDelayMostHops; ++hops) {
      if (job_.operations[at].rank != job_.operations[i].rank) return kNone;
      if (operations_[at].collective != kNone) return at;
      // Only exits, and markers after a member on its stream, are passed through.
      if (operations_[at].lane != kNone && operations_[at].duration_ns > 0) return kNone;
      at = schedule_.cause[at];
    }
    return kNone;
  }

  void FindWaits() {
    std::vector<WaitState>& waits = result_.waits;
    for (std::uint32_t i = 0; i < operations_.size(); ++i) {
      const std::uint32_t rank = job_.operations[i].rank;
      if (rank == kNone || operations_[i].lane == kNone) continue;
      WaitState wait{rank, kNone, i, kNone, 0, 0, 0};
      if (operations_[i].collective != kNone) {
        // Its lane, and the operations after it there, wait for the last one. Members that take turns in parallel to
        // the thread that posted them do not delay any lane themselves.
        if (!HoldsItsLane(i)) continue;
        wait.arrival = LastOf(i);
        wait.begin_ns = schedule_.begin_ns[i];
        wait.end_ns = ArrivedNs(i);
      } else {
        const std::uint32_t lane_before = before_[i];
        wait.begin_ns = lane_before == kNone ? 0 : schedule_.end_ns[lane_before];
        if (schedule_.begin_ns[i] <= wait.begin_ns) continue;
        const std::uint32_t cause = schedule_.cause[i];
        if (cause == kNone) continue;
        if (job_.operations[cause].rank != rank) {
          wait.arrival = cause;
          wait.end_ns = schedule_.begin_ns[i];
        } else if (const std::uint32_t member = MemberBehind(i); member != kNone) {
          wait.arrival = LastOf(member);
          wait.end_ns = std::min(ArrivedNs(member), schedule_.begin_ns[i]);
        } else {
          continue;
        }
      }
      wait.delayer = job_.operations[wait.arrival].rank;
      if (wait.end_ns <= wait.begin_ns || wait.delayer == rank || wait.delayer == kNone) continue;
      waits.push_back(wait);
    }
    std::stable_sort(waits.begin(), waits.end(),
                     [](const WaitState& a, const WaitState& b) { return a.end_ns < b.end_ns; });
    for (std::uint32_t w = 0; w < waits.size(); ++w) wait_of_[waits[w].operation] = w;
  }

  bool HoldsItsLane(std::uint32_t member) const {
    const std::uint32_t lane = operations_[member].lane;
    return !job_.graph.queued_lanes()[lane];
  }

  // What the rank did before its operation `i` began, back to its last synchronisation with `other`.
  std::vector<Part> Before(std::uint32_t i, std::uint32_t other) const {
    std::vector<Part> parts;
    std::uint32_t at = i;
    bool first = true;
    while (at != kNone && parts.size() < rules::kDelayIntervalMostOperations) {
      if (!first) {
        // A message to the other rank is a synchronisation.
        if (const auto to = offered_.find(at);
            to != offered_.end() && std::find(to->second.begin(), to->second.end(), other) != to->second.end())
          break;
        if (operations_[at].collective != kNone) {
          if (Synchronises(at, other)) break;
          const std::int64_t arrived = std::max(ArrivedNs(at), schedule_.begin_ns[at]);
          parts.push_back({at, kNone, schedule_.end_ns[at] - arrived});
          if (wait_of_[at] != kNoWait) parts.push_back({kNone, wait_of_[at], Length(wait_of_[at])});
        } else {
          parts.push_back({at, kNone, schedule_.end_ns[at] - schedule_.begin_ns[at]});
        }
      }
      // The operation for which it waited before it began.
      const std::uint32_t cause = schedule_.cause[at], lane_before = before_[at];
      if (operations_[at].collective == kNone && cause != kNone) {
        if (job_.operations[cause].rank != job_.operations[at].rank) {
          if (!first || wait_of_[at] != kNoWait) {
            if (!first && job_.operations[cause].rank == other) break;
            if (!first && wait_of_[at] != kNoWait) parts.push_back({kNone, wait_of_[at], Length(wait_of_[at])});
          }
          first = false;
          at = lane_before;
          continue;
        }
        if (const std::uint32_t member = MemberBehind(at); member != kNone && operations_[at].lane != kNone) {
          if (!first) {
            if (Synchronises(member, other)) break;
            if (wait_of_[at] != kNoWait) parts.push_back({kNone, wait_of_[at], Length(wait_of_[at])});
          }
          first = false;
          at = lane_before;
          continue;
        }
      }
      first = false;
      at = cause != kNone && job_.operations[cause].rank == job_.operations[at].rank ? cause : lane_before;
    }
    return parts;
  }

  std::int64_t Length(std::uint32_t wait) const { return result_.waits[wait].end_ns - result_.waits[wait].begin_ns; }

  struct Excess {
    std::uint32_t operation, wait;
    double ns;
  };

  // The work of the delayer beyond that of the waiting rank, piece by piece if both have equally many.
  std::vector<Excess> Beyond(const WaitState& wait) const {
    const std::vector<Part> late = Before(wait.arrival, wait.rank), early = Before(wait.operation, wait.delayer);
    std::vector<Excess> beyond;
    for (const bool waiting : {false, true}) {
      std::vector<const Part*> a, b;
      for (const Part& part : late)
        if ((part.wait != kNone) == waiting && part.ns > 0) a.push_back(&part);
      for (const Part& part : early)
        if ((part.wait != kNone) == waiting && part.ns > 0) b.push_back(&part);
      if (a.size() == b.size()) {
        for (std::size_t k = 0; k < a.size(); ++k)
          if (a[k]->ns > b[k]->ns)
            beyond.push_back({a[k]->operation, a[k]->wait, static_cast<double>(a[k]->ns - b[k]->ns)});
        continue;
      }
      double whole = 0, other = 0;
      for (const Part* part : a) whole += static_cast<double>(part->ns);
      for (const Part* part : b) other += static_cast<double>(part->ns);
      if (whole <= other) continue;
      for (const Part* part : a)
        beyond.push_back({part->operation, part->wait, static_cast<double>(part->ns) * (whole - other) / whole});
    }
    return beyond;
  }

  // A wait's causes are charged after all waits that pass their time on to it.
  void Explain() {
    std::vector<WaitState>& waits = result_.waits;
    std::vector<std::vector<Excess>> causes(waits.size());
    std::vector<std::uint32_t> users(waits.size(), 0), ready;
    for (std::size_t w = 0; w < waits.size(); ++w) {
      causes[w] = Beyond(waits[w]);
      for (const Excess& each : causes[w])
        if (each.wait != kNone) ++users[each.wait];
    }
    for (std::uint32_t w = 0; w < waits.size(); ++w)
      if (users[w] == 0) ready.push_back(w);
    std::vector<double> handed_on(waits.size(), 0);
    std::map<std::uint32_t, DelayCost> costs;
    for (std::size_t next = 0; next < ready.size(); ++next) {
      const std::uint32_t w = ready[next];
      WaitState& wait = waits[w];
      const double length = static_cast<double>(wait.end_ns - wait.begin_ns);
      double sum = 0;
      for (const Excess& each : causes[w]) sum += each.ns;
      if (sum > 0) wait.explained = std::min(1.0, sum / length);
      for (const Excess& each : causes[w]) {
        const double share = wait.explained * each.ns / sum;
        if (each.wait == kNone) {
          DelayCost& cost = costs.try_emplace(each.operation, DelayCost{each.operation, 0, 0}).first->second;
          cost.short_term_ns += length * share;
          cost.long_term_ns += handed_on[w] * share;
        } else {
          handed_on[each.wait] += (length + handed_on[w]) * share;
          if (--users[each.wait] == 0) ready.push_back(each.wait);
        }
      }
    }
    for (const auto& [operation, cost] : costs) result_.costs.push_back(cost);
  }

  const RecordedRun& run_;
  const Job& job_;
  const std::vector<Operation>& operations_;
  const Schedule& schedule_;
  std::vector<std::uint32_t> before_, wait_of_;
  std::vector<bool> everyone_;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> groups_;
  // The same, with the member's operation, where not all wait for all.
  std::unordered_map<std::uint32_t, std::vector<std::pair<std::uint32_t, std::uint32_t>>> selective_;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> offered_;  // The ranks to which an operation sends.
  Delays result_;
};

}  // namespace

Delays FindDelays(const RecordedRun& run, const Job& job, const Schedule& schedule) {
  return Finder(run, job, schedule).Find();
}

}  // namespace lockstep::replay
