#include "analysis/replay/questions/larger_units.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "analysis/core/statistics.h"
#include "analysis/replay/graph/units.h"
#include "analysis/replay/questions/prefetch.h"
#include "analysis/rules/replay.h"
#include "core/rules/common.h"

namespace lockstep::replay {
namespace {

struct Uses {
  Gathers gathers, reductions;
};

// Of all ranks alike; both empty otherwise.
Uses UsesOf(const RecordedRun& run, const Job& job) {
  const UnitCollectives units = FindUnits(run);
  Uses uses{FindGathers(run, job, units.gathers), FindGathers(run, job, units.reductions)};
  const auto alike = [](const Gathers& all) {
    for (const auto& rank : all)
      for (std::size_t step = 0; step < rank.size(); ++step)
        for (std::size_t k = 0; k < rank[step].size(); ++k)
          if (rank[step][k].collective != all[0][step][k].collective) return false;
    return !all.empty();
  };
  if (!alike(uses.gathers) || !alike(uses.reductions) || uses.gathers[0][0].size() < uses.reductions[0][0].size())
    return {};
  return uses;
}

// The collectives of a step, in the order of their use, as [begin, end) of what becomes one. Units are reduced in the
// opposite order of the forward pass, and so gathered for the backward pass, if they were freed: groups of the same
// units, counted from the end there.
std::vector<std::pair<std::size_t, std::size_t>> Groups(std::size_t count, std::size_t forward, std::size_t together) {
  std::vector<std::pair<std::size_t, std::size_t>> groups;
  for (std::size_t begin = 0; begin < forward; begin += together)
    groups.push_back({begin, std::min(forward, begin + together)});
  for (std::size_t end = count; end > forward;) {
    const std::size_t begin = end - std::min(together, end - forward);
    groups.push_back({begin, end});
    end = begin;
  }
  return groups;
}

// The factor by which one collective of all these bytes differs from one for each; nothing if it is not known.
std::optional<double> RatioOf(const CostModel& costs, const std::vector<std::uint64_t>& parts, int dearer) {
  double apart_ns = 0;
  std::uint64_t total = 0;
  for (const std::uint64_t bytes : parts) {
    const auto cost = costs.At(bytes);
    if (!cost) return std::nullopt;
    apart_ns += cost->ns;
    total += bytes;
  }
  const auto whole = costs.At(total);
  if (!whole || apart_ns <= 0) return std::nullopt;
  return whole->ns / apart_ns * std::pow(whole->factor, dearer);
}

class Merge {
 public:
  Merge(const RecordedRun& run, std::size_t together, int dearer) : run_(run), together_(together), dearer_(dearer) {}

  // `job` is the run's own; nullptr: only asks whether the costs are known.
  bool Apply(const Gathers& uses, std::size_t forward, bool last_carries, const CostModel& costs, Job* job) {
    for (std::size_t r = 0; r < uses.size(); ++r)
      for (const std::vector<Gather>& step : uses[r])
        for (const auto& [begin, end] : Groups(step.size(), forward, together_)) {
          std::vector<std::uint64_t> parts;
          for (std::size_t k = begin; k < end; ++k) parts.push_back(run_.collectives[step[k].collective].bytes);
          const std::optional<double> ratio = RatioOf(costs, parts, dearer_);
          if (!ratio) return false;
          if (job != nullptr && end - begin > 1)
            MakeOne(&step[begin], &step[end - 1] + 1, last_carries ? end - begin - 1 : 0, *ratio, *job);
        }
    return true;
  }

  // Those that are left out have nobody who leaves them later.
  void RemoveExits(Job& job) const {
    for (std::size_t i = 0; i < job.operations.size(); ++i)
      if (job.operations[i].role == Role::kExit && gone_.contains(job.operations[i].collective))
        job.graph.operations()[i].duration_ns = 0;
  }

 private:
  void MakeOne(const Gather* begin, const Gather* end, std::size_t carrier, double ratio, Job& job) {
    double apart_ns = 0;
    std::vector<Operation>& operations = job.graph.operations();
    for (const Gather* each = begin; each != end; ++each) {
      Operation& member = operations[each->member];
      apart_ns += static_cast<double>(member.duration_ns);
      if (each == begin + carrier) continue;
      gone_.insert(each->collective);
      member.collective = kNone;
      member.duration_ns = member.delay_ns = 0;
      member.activity = Activity::kOther;
    }
    operations[begin[carrier].member].duration_ns = std::llround(apart_ns * ratio);
  }

  const RecordedRun& run_;
  const std::size_t together_;
  const int dearer_;
  std::set<std::uint32_t> gone_;  // Collectives.
};

// What the collectives of a step's units cost; `extrapolated` if some of it does.
std::int64_t StepNs(const RecordedRun& run, const Uses& uses, const UnitCosts& costs, std::size_t together,
                    bool* extrapolated) {
  double sum_ns = 0;
  const auto add = [&](const std::vector<Gather>& step, std::size_t forward, const CostModel& model) {
    for (const auto& group : Groups(step.size(), forward, together)) {
      std::uint64_t bytes = 0;
      for (std::size_t k = group.first; k < group.second; ++k) bytes += run.collectives[step[k].collective].bytes;
      const auto cost = model.At(bytes);
      if (!cost) continue;
      sum_ns += cost->ns;
      if (extrapolated != nullptr) *extrapolated |= cost->extrapolated;
    }
  };
  add(uses.gathers[0][0], uses.reductions[0][0].size(), costs.gather);
  add(uses.reductions[0][0], 0, costs.reduction);
  return std::llround(sum_ns);
}

void AddCosts(const RecordedRun& run, const Job& job, const Gathers& uses, CostModel& costs) {
  if (uses.empty()) return;
  for (std::size_t step = 0; step < uses[0].size(); ++step)
    for (std::size_t k = 0; k < uses[0][step].size(); ++k) {
      std::vector<std::int64_t> took_ns;
      for (const auto& rank : uses) took_ns.push_back(job.graph.operations()[rank[step][k].member].duration_ns);
      costs.Add(run.collectives[uses[0][step][k].collective].bytes, LowerMedian(std::move(took_ns)));
    }
  const RunCollective& first = run.collectives[uses[0][0][0].collective];
  for (const TransferBeside& each : run.beside)
    if (each.comm == first.comm && each.kind == first.kind && each.bytes > rules::kTinyTransferBytes)
      costs.AddBeside(each.bytes, each.transfer_ns);
  // An all-reduce goes there and back.
  costs.SetLatency((first.kind == CollectiveKind::kAllReduce ? 2 : 1) * run.LatencyNs(first.comm));
}

}  // namespace

std::shared_ptr<const UnitCosts> CostsOfUnits(const RecordedRun& run, const Job& job) {
  auto costs = std::make_shared<UnitCosts>();
  const Uses uses = UsesOf(run, job);
  AddCosts(run, job, uses.gathers, costs->gather);
  AddCosts(run, job, uses.reductions, costs->reduction);
  costs->gather.Fit();
  costs->reduction.Fit();
  return costs;
}

std::optional<Question> WithLargerUnits(const RecordedRun& run, std::shared_ptr<const UnitCosts> costs,
                                        std::size_t together, int dearer) {
  if (together == 0) return std::nullopt;
  const auto apply = [&run, costs = std::move(costs), together, dearer](const Job& made, Job* job) {
    const Uses uses = UsesOf(run, made);
    if (uses.gathers.empty()) return false;
    const std::size_t units = uses.reductions[0][0].size();
    Merge merge(run, together, dearer);
    if (!merge.Apply(uses.gathers, units, false, costs->gather, job)) return false;
    if (!merge.Apply(uses.reductions, 0, true, costs->reduction, job)) return false;
    if (job != nullptr) merge.RemoveExits(*job);
    return true;
  };
  if (!apply(run.MakeJob(), nullptr)) return std::nullopt;
  Question question{.kind = Question::kEdit};
  question.edit = [apply](Job& job) { apply(job, &job); };
  return question;
}

std::optional<LargerUnits> FindLargerUnits(const WhatIf& what_if, const Job& job, std::int64_t worth_ns) {
  const RecordedRun& run = what_if.run();
  const Uses uses = UsesOf(run, job);
  if (uses.gathers.empty()) return std::nullopt;
  LargerUnits found;
  found.units = uses.reductions[0][0].size();
  const std::shared_ptr<const UnitCosts> costs = CostsOfUnits(run, job);
  std::vector<std::pair<std::size_t, std::int64_t>> gains;
  std::int64_t most_ns = worth_ns;
  for (std::size_t together = 2; together <= found.units / 2; together *= 2) {
    const std::optional<Question> question = WithLargerUnits(run, costs, together);
    if (!question) return std::nullopt;
    const Result<Answer> answer = what_if.Ask(*question, false);
    if (!answer.ok()) return std::nullopt;
    gains.push_back({together, answer.value().gain_ns});
    most_ns = std::max(most_ns, answer.value().gain_ns);
  }
  const auto enough = std::find_if(gains.begin(), gains.end(), [&](const auto& each) {
    return each.second > worth_ns && each.second + worth_ns >= most_ns;
  });
  if (enough == gains.end()) return std::nullopt;
  found.together = enough->first;
  for (const int dearer : {0, 1, -1}) {
    const Result<Answer> answer = what_if.Ask(*WithLargerUnits(run, costs, found.together, dearer));
    if (!answer.ok()) return std::nullopt;
    const auto& interval = answer.value().gain_interval_ns;
    if (dearer == 0) {
      found.gain_ns = answer.value().gain_ns;
      found.gain_interval_ns = interval;
      found.limit = answer.value().limit;
    } else if (interval && found.gain_interval_ns) {
      found.gain_interval_ns->first = std::min(found.gain_interval_ns->first, interval->first);
      found.gain_interval_ns->second = std::max(found.gain_interval_ns->second, interval->second);
    }
  }
  found.transfers_ns = StepNs(run, uses, *costs, 1, nullptr);
  found.transfers_then_ns = StepNs(run, uses, *costs, found.together, &found.extrapolated);
  return found;
}

std::optional<LargerUnits> FewerUnitsAtMost(const WhatIf& what_if, const Job& job, double bytes_per_ns) {
  const RecordedRun& run = what_if.run();
  const Uses uses = UsesOf(run, job);
  if (uses.gathers.empty() || uses.reductions[0][0].size() < rules::kMergedUnitsLeast) return std::nullopt;
  const std::shared_ptr<const UnitCosts> known = CostsOfUnits(run, job);
  auto same = std::make_shared<UnitCosts>();
  for (const auto& [costs, made] : {std::pair(&known->gather, &same->gather), {&known->reduction, &same->reduction}}) {
    if (costs->knots().size() != 1 || costs->usable_sizes() != 1) return std::nullopt;
    *made = CostModel::SameForAll(costs->knots().front().transfer_ns);
  }
  LargerUnits found;
  found.units = uses.reductions[0][0].size();
  found.together = (found.units + 1) / 2;
  found.transfers_ns = StepNs(run, uses, *known, 1, nullptr);
  found.transfers_then_ns = StepNs(run, uses, *same, found.together, nullptr);
  double bytes = 0;
  for (const Gathers& all : {uses.gathers, uses.reductions})
    for (const Gather& each : all[0][0]) bytes += static_cast<double>(run.collectives[each.collective].bytes);
  if (MostOf(bytes, bytes_per_ns * static_cast<double>(found.transfers_ns))) return std::nullopt;
  const std::optional<Question> question = WithLargerUnits(run, same, found.together);
  if (!question) return std::nullopt;
  const Result<Answer> answer = what_if.Ask(*question);
  if (!answer.ok()) return std::nullopt;
  found.gain_ns = answer.value().gain_ns;
  found.gain_interval_ns = answer.value().gain_interval_ns;
  found.limit = answer.value().limit;
  return found;
}

}  // namespace lockstep::replay
