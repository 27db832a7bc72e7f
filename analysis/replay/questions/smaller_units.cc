#include "analysis/replay/questions/smaller_units.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "analysis/core/statistics.h"
#include "analysis/replay/graph/units.h"
#include "analysis/replay/questions/larger_units.h"
#include "analysis/replay/questions/prefetch.h"
#include "analysis/rules/replay.h"
#include "core/interval.h"
#include "core/rules/common.h"

namespace lockstep::replay {
namespace {

// As Clip, but looks at what is inside only.
IntervalSet Within(const IntervalSet& set, Interval window) {
  IntervalSet inside;
  auto at =
      std::partition_point(set.begin(), set.end(), [&](const Interval& each) { return each.end <= window.begin; });
  for (; at != set.end() && at->begin < window.end; ++at)
    inside.push_back({std::max(at->begin, window.begin), std::min(at->end, window.end)});
  return inside;
}

// The first `ns` of a set, or all of it.
IntervalSet First(const IntervalSet& set, std::int64_t ns) {
  IntervalSet first;
  for (const Interval& each : set) {
    if (ns <= 0) break;
    first.push_back({each.begin, std::min(each.end, each.begin + ns)});
    ns -= first.back().end - first.back().begin;
  }
  return first;
}

// The transfer of a unit on one rank, and the work of the unit that may hide parts of it.
struct Use {
  std::uint32_t member;     // Operation.
  std::int64_t latency_ns;  // Of each part more.
  Interval own_work;
};

class Units {
 public:
  Units(const RecordedRun& run, const Job& job, const Schedule& schedule)
      : run_(run), job_(job), schedule_(schedule), costs_(CostsOfUnits(run, job)) {
    const UnitCollectives units = FindUnits(run);
    gathers_ = FindGathers(run, job, units.gathers);
    reductions_ = FindGathers(run, job, units.reductions);
  }

  bool Found() const {
    return !gathers_.empty() && !reductions_.empty() && gathers_[0][0].size() >= reductions_[0][0].size() &&
           gathers_[0][0].size() <= 2 * rules::kLargeUnitsMost;
  }

  // Whether the rank computes on while they move.
  bool GoOnBesideWork() const {
    for (const Gathers* all : {&gathers_, &reductions_})
      for (const auto& rank : *all)
        for (const auto& step : rank)
          for (const Gather& each : step) {
            const std::uint32_t lane = job_.graph.operations()[each.member].lane;
            if (lane != kNone && !job_.graph.queued_lanes()[lane]) return false;
          }
    return true;
  }

  void Measure() {
    FindWork();
    for (std::uint32_t rank = 0; rank < run_.ranks.size(); ++rank)
      for (std::uint32_t step = 0; step < run_.steps.size(); ++step) MeasureStep(rank, step);
  }
  std::int64_t transfers_ns() const { return LowerMedian(transfers_ns_); }
  std::int64_t bare_ns() const { return LowerMedian(bare_ns_); }

  // Each transfer of a unit as what is exposed of it in so many parts. `least_ns`: a part's latency where none is
  // known.
  Question InParts(std::size_t parts, std::int64_t least_ns) const {
    std::vector<std::pair<std::uint32_t, double>> shares;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      IntervalSet free = free_[i];
      for (const Use& use : steps_[i]) shares.push_back({use.member, Remains(use, parts, least_ns, free)});
    }
    Question question{.kind = Question::kEdit};
    question.edit = [shares = std::move(shares)](Job& changed) {
      for (const auto& [member, share] : shares) {
        std::int64_t& ns = changed.graph.operations()[member].duration_ns;
        ns = std::llround(static_cast<double>(ns) * share);
      }
    };
    return question;
  }

 private:
  std::int64_t TookNs(std::uint32_t member) const { return job_.graph.operations()[member].duration_ns; }

  // Of each rank what computes: its kernels if it has any, else what its threads do themselves.
  void FindWork() {
    std::vector<std::vector<Interval>> kernels(run_.ranks.size()), own(run_.ranks.size()), moves(run_.ranks.size());
    for (std::uint32_t i = 0; i < job_.operations.size(); ++i) {
      const JobOperation& about = job_.operations[i];
      if (about.rank == kNone) continue;
      const std::int64_t end = schedule_.end_ns[i];
      if (about.role == Role::kKernel) kernels[about.rank].push_back({schedule_.begin_ns[i], end});
      if (about.role == Role::kWork) own[about.rank].push_back({schedule_.begin_ns[i], end});
      if (about.role == Role::kMember) moves[about.rank].push_back({end - TookNs(i), end});
    }
    for (std::size_t rank = 0; rank < run_.ranks.size(); ++rank) {
      work_.push_back(Normalize(std::move(kernels[rank].empty() ? own[rank] : kernels[rank])));
      alone_.push_back(Subtract(work_.back(), Normalize(std::move(moves[rank]))));
    }
  }

  IntervalSet WorkBeside(std::uint32_t rank, std::uint32_t member) const {
    return Within(work_[rank], WhenMoved(member));
  }
  Interval WhenMoved(std::uint32_t member) const {
    const std::int64_t end = schedule_.end_ns[member];
    return {end - TookNs(member), end};
  }

  // What hides beside an earlier unit's work now can hide beside its own, if there is room: its place is free then.
  // From the last on, so that each leaves its place to the one before it.
  void MakeRoom(std::uint32_t rank, const std::vector<Use>& uses, std::size_t gathers, IntervalSet& free) const {
    for (std::size_t k = gathers; k-- > 0;) {
      const IntervalSet now = WorkBeside(rank, uses[k].member);
      const IntervalSet room = Within(free, uses[k].own_work);
      if (now.empty() || Total(room) < Total(now)) continue;
      IntervalSet left = now;
      const Interval when = WhenMoved(uses[k].member);
      for (std::size_t other = 0; other < uses.size(); ++other) {
        const Interval then = WhenMoved(uses[other].member);
        if (other != k && then.begin < when.end && when.begin < then.end)
          left = Subtract(left, WorkBeside(rank, uses[other].member));
      }
      free = Unite(Subtract(free, First(room, Total(now))), left);
    }
  }

  // What next to no bytes take, or units of several sizes say.
  std::int64_t LatencyNs(std::uint32_t collective, const CostModel& costs) const {
    const RunCollective& c = run_.collectives[collective];
    const std::int64_t known_ns = (c.kind == CollectiveKind::kAllReduce ? 2 : 1) * run_.LatencyNs(c.comm);
    const auto line = costs.AlphaBeta();
    return known_ns > 0 || !line ? known_ns : std::llround(line->alpha_ns);
  }

  void MeasureStep(std::uint32_t rank, std::uint32_t step) {
    const auto& gathers = gathers_[rank][step];
    const auto& reductions = reductions_[rank][step];
    std::vector<Use> uses;
    const std::int64_t last_launch = schedule_.begin_ns[reductions.back().member];
    for (std::size_t k = 0; k < gathers.size(); ++k) {
      const std::int64_t there = schedule_.end_ns[gathers[k].member];
      const std::int64_t next = k + 1 < gathers.size() ? ArrivalAt(gathers[k + 1]) : last_launch;
      uses.push_back(
          {gathers[k].member, LatencyNs(gathers[k].collective, costs_->gather), {there, std::max(there, next)}});
    }
    // The backward pass begins with the first gather after those of the forward pass; what is kept from the forward
    // pass is gathered once.
    const bool twice = gathers.size() == 2 * reductions.size();
    std::int64_t begin = schedule_.end_ns[gathers[twice ? reductions.size() : gathers.size() - 1].member];
    for (const Gather& reduction : reductions) {
      const std::int64_t launch = schedule_.begin_ns[reduction.member];
      uses.push_back(
          {reduction.member, LatencyNs(reduction.collective, costs_->reduction), {std::min(begin, launch), launch}});
      begin = launch;
    }
    std::int64_t whole_ns = 0, bare_ns = 0;
    for (const Use& use : uses) {
      whole_ns += TookNs(use.member);
      bare_ns += TookNs(use.member) - TotalWithin(work_[rank], WhenMoved(use.member));
    }
    transfers_ns_.push_back(whole_ns);
    bare_ns_.push_back(bare_ns);
    Interval all = uses.front().own_work;
    for (const Use& use : uses) {
      all.begin = std::min(all.begin, use.own_work.begin);
      all.end = std::max(all.end, use.own_work.end);
    }
    IntervalSet free = Within(alone_[rank], all);
    MakeRoom(rank, uses, gathers.size(), free);
    free_.push_back(std::move(free));
    steps_.push_back(std::move(uses));
  }

  // When the rank comes to what needs it.
  std::int64_t ArrivalAt(const Gather& gather) const {
    return gather.before == kNone ? 0 : schedule_.end_ns[gather.before];
  }

  // The share of a transfer that remains exposed; what hides the rest is taken from `free`.
  double Remains(const Use& use, std::size_t parts, std::int64_t least_ns, IntervalSet& free) const {
    const std::int64_t took = TookNs(use.member);
    if (took <= 0) return 1;
    const auto n = static_cast<std::int64_t>(parts);
    const std::int64_t latency_ns = use.latency_ns > 0 ? use.latency_ns : least_ns;
    const std::int64_t whole = took + (n - 1) * std::min(latency_ns, took);
    // The first part has no work of its unit before it, the last one none after it.
    const IntervalSet own = Within(free, use.own_work);
    const std::int64_t hides = std::min(whole - whole / n, Total(own) / n * (n - 1));
    if (whole - hides >= took) return 1;
    free = Subtract(free, First(own, hides));
    return static_cast<double>(whole - hides) / static_cast<double>(took);
  }

  const RecordedRun& run_;
  const Job& job_;
  const Schedule& schedule_;
  const std::shared_ptr<const UnitCosts> costs_;
  Gathers gathers_, reductions_;
  std::vector<IntervalSet> work_, alone_;  // By rank: what computes; of that what nothing moves beside.
  std::vector<std::vector<Use>> steps_;    // Of each rank and step.
  std::vector<IntervalSet> free_;          // Parallel: the work beside which there is room.
  std::vector<std::int64_t> transfers_ns_, bare_ns_;
};

}  // namespace

std::optional<SmallerUnits> FindSmallerUnits(const WhatIf& what_if, const Job& job, const Schedule& schedule,
                                             std::int64_t worth_ns) {
  Units units(what_if.run(), job, schedule);
  if (!units.Found() || !units.GoOnBesideWork()) return std::nullopt;
  units.Measure();
  SmallerUnits found;
  found.transfers_ns = units.transfers_ns();
  found.bare_ns = units.bare_ns();
  if (!MuchOf(found.bare_ns, found.transfers_ns)) return std::nullopt;
  bool tells = false;
  for (std::size_t parts = 2; parts <= rules::kUnitPartsMost; parts *= 2) {
    const Result<Answer> slow = what_if.Ask(units.InParts(parts, rules::kUnknownLatencyNs), false);
    const Result<Answer> most = what_if.Ask(units.InParts(parts, 0), false);
    if (!slow.ok() || !most.ok()) return std::nullopt;
    tells |= slow.value().gain_ns > worth_ns;
    if (most.value().gain_ns <= found.gain_ns) continue;
    found.parts = parts;
    found.gain_ns = most.value().gain_ns;
  }
  if (!tells) return std::nullopt;
  const Result<Answer> answer = what_if.Ask(units.InParts(found.parts, 0));
  if (!answer.ok()) return std::nullopt;
  found.gain_interval_ns = answer.value().gain_interval_ns;
  found.limit = answer.value().limit;
  return found;
}

}  // namespace lockstep::replay
