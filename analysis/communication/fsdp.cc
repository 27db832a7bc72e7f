// Sharded parameters (FSDP and similar): which units are gathered before they are used, how long compute waits for
// them, and what gathering them earlier, fewer and larger ones, or more and smaller ones would gain.

#include <algorithm>

#include "analysis/choose_findings.h"
#include "analysis/core/format.h"
#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "analysis/replay/graph/units.h"
#include "analysis/replay/questions/larger_units.h"
#include "analysis/replay/questions/prefetch.h"
#include "analysis/replay/questions/smaller_units.h"
#include "analysis/replayed/replayed_run.h"
#include "analysis/rules/network.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

using replay::Answer;
using replay::Gather;
using replay::Question;

using Uses = replay::Gathers;

class Sharded {
 public:
  Sharded(const ReplayedRun& replayed, Analysis& analysis) : replayed_(replayed), analysis_(analysis) {}

  void Run() {
    const replay::Job& job = replayed_.job();
    const replay::UnitCollectives units = FindUnits(replayed_.run());
    gathers_ = FindGathers(replayed_.run(), job, units.gathers);
    scatters_ = FindGathers(replayed_.run(), job, units.reductions);
    reductions_ = ReductionsOfAStep(units.reductions);
    if (gathers_.empty() || scatters_.empty() || gathers_[0][0].size() < 2) return;
    Describe();
    if (!replayed_.HoldsInSteps()) return;
    PricePrefetch();
    if (!TellLargerUnits()) TellSmallerUnits();
  }

 private:
  // Of the first rank, in the first of its steps that has any. Not all have something that waits for them alone, as
  // those of `scatters_` have: a stream's last one stands for those before it.
  std::size_t ReductionsOfAStep(const std::vector<bool>& reductions) const {
    std::size_t count = 0;
    std::uint32_t step = replay::kNone;
    for (const auto& launch : replayed_.run().LaunchesOfFirstRank()) {
      if (launch.step == replay::kNone || !reductions[launch.collective]) continue;
      if (count > 0 && launch.step != step) break;
      step = launch.step;
      ++count;
    }
    return count;
  }

  std::uint64_t BytesOf(const Gather& gather) const { return replayed_.run().collectives[gather.collective].bytes; }

  // How long the operation that uses it waits for it after the operation before it has ended.
  std::int64_t ExposedNs(const Gather& gather) const {
    const replay::Schedule& schedule = replayed_.schedule();
    const std::int64_t before = gather.before == replay::kNone ? 0 : schedule.end_ns[gather.before];
    return std::max<std::int64_t>(0, schedule.end_ns[gather.member] - before);
  }

  std::int64_t MedianExposed(const Uses& uses, std::size_t place) const {
    std::vector<std::int64_t> values;
    for (const auto& rank : uses)
      for (const auto& step : rank) values.push_back(ExposedNs(step[place]));
    return LowerMedian(std::move(values));
  }

  // Units are gathered for the forward pass and, if they were freed after it, again for the backward pass, in the same
  // or in the opposite order.
  void Describe() {
    const std::size_t gathers = gathers_[0][0].size(), scatters = scatters_[0][0].size();
    const bool twice = gathers == 2 * reductions_;
    const std::size_t units = twice ? reductions_ : gathers;
    bool same = twice, opposite = twice;
    for (std::size_t u = 0; twice && u < units; ++u) {
      same &= BytesOf(gathers_[0][0][u]) == BytesOf(gathers_[0][0][units + u]);
      opposite &= BytesOf(gathers_[0][0][u]) == BytesOf(gathers_[0][0][gathers - 1 - u]);
    }
    for (std::size_t u = 0; u < units; ++u) {
      FsdpUnit unit;
      unit.unit = static_cast<std::uint32_t>(u);
      unit.bytes = BytesOf(gathers_[0][0][u]);
      unit.gather_exposed_ns = MedianExposed(gathers_, u);
      const bool turned = opposite || !same;
      if (twice) unit.gather_exposed_ns += MedianExposed(gathers_, turned ? gathers - 1 - u : units + u);
      if (scatters == units) unit.scatter_exposed_ns = MedianExposed(scatters_, turned ? units - 1 - u : u);
      analysis_.fsdp.units.push_back(unit);
    }
    // The time after the last compute operation of the step that a reduce-scatter follows.
    std::vector<std::int64_t> tails;
    const replay::Schedule& schedule = replayed_.schedule();
    for (const auto& rank : scatters_)
      for (const auto& step : rank) {
        std::int64_t end = 0, computed = 0;
        for (const Gather& scatter : step) {
          end = std::max(end, schedule.end_ns[scatter.member]);
          if (scatter.before != replay::kNone) computed = std::max(computed, schedule.end_ns[scatter.before]);
        }
        tails.push_back(std::max<std::int64_t>(0, end - computed));
      }
    analysis_.fsdp.scatter_tail_ns = LowerMedian(std::move(tails));
  }

  void PricePrefetch() {
    const replay::WhatIf& what_if = replayed_.what_if();
    const std::int64_t step = what_if.replayed_step_ns();
    const auto worth = static_cast<std::int64_t>(rules::kWorthShare * static_cast<double>(step));
    std::optional<Answer> best;
    std::size_t depth = 0;
    for (std::size_t each = 1; each <= rules::kPrefetchDepth; each *= 2) {
      Question question;
      question.kind = Question::kPrefetch;
      question.depth = each;
      const Result<Answer> answer = what_if.Ask(question);
      if (!answer.ok()) return;
      // A deeper prefetch must gain noticeably more, because each level keeps one more unit in memory.
      if (best && answer.value().gain_ns <= best->gain_ns + worth) continue;
      best = answer.value();
      depth = each;
    }
    // If it is certain only inside MPI calls that data moves, the gain may be anything up to that.
    const bool at_most = replayed_.run().moves_in_calls();
    if (!best || best->gain_ns <= worth ||
        (!at_most && best->gain_interval_ns.value_or(std::pair<std::int64_t, std::int64_t>{}).first <= 0))
      return;
    std::int64_t exposed = 0;
    for (const FsdpUnit& unit : analysis_.fsdp.units) exposed += unit.gather_exposed_ns;
    Finding finding;
    finding.id = FindingId::kFsdpPrefetch;
    finding.said.headline = {
        Say(Word::kShardsLate),
        Say(Word::kShardsLateGain, {{"step", Ns{step}}, {"gain", Ns{best->gain_ns}}, {"at_most", at_most}})};
    finding.said.brief = {Say(Word::kShardsLateBrief, {{"depth", Num{static_cast<std::int64_t>(depth)}}})};
    const bool differ = Bytes(Least()) != Bytes(Most());  // As they read.
    finding.said.evidence = {Say(Word::kShardsLateEvidence, {{"units", Units()},
                                                             {"smallest", Size{Least()}},
                                                             {"largest", If(differ, Size{Most()})},
                                                             {"exposed", Ns{exposed}}})};
    finding.said.action = {Say(Word::kReplayedSetting, {{"setting", best->try_it}})};
    analysis_.fsdp.recommended_depth = depth;
    prefetched_ns_ = best->gain_ns;
    finding.saves_ns_per_step = best->gain_ns;
    finding.saves_interval_ns = best->gain_interval_ns;
    finding.then = best->limit;
    finding.replayed = true;
    finding.upper_bound = at_most;
    finding.explain = UnitRows();
    analysis_.findings.push_back(std::move(finding));
  }

  // Whether it told of them.
  bool TellLargerUnits() {
    const std::int64_t step = replayed_.what_if().replayed_step_ns();
    const auto worth = static_cast<std::int64_t>(rules::kWorthShare * static_cast<double>(step));
    const std::optional<replay::LargerUnits> larger = FindLargerUnits(replayed_.what_if(), replayed_.job(), worth);
    if (!larger || larger->gain_ns <= worth || !larger->gain_interval_ns || larger->gain_interval_ns->first <= 0)
      return TellUnitsAreMany(step, worth);
    const Index units{static_cast<std::int64_t>(larger->units)}, together{static_cast<std::int64_t>(larger->together)};
    const Index fewer{(units.value + together.value - 1) / together.value};
    const Size up_to{Most() * larger->together};
    Finding finding;
    finding.id = FindingId::kFsdpUnits;
    finding.said.headline = {
        Say(Word::kShardsSmall),
        Say(Word::kShardsSmallGain,
            {{"other_units", fewer}, {"units", units}, {"gain", Ns{larger->gain_ns}}, {"step", Ns{step}}})};
    finding.said.brief = {Say(Word::kShardsSmallBrief, {{"other_units", fewer}, {"units", units}})};
    finding.said.evidence = {Say(Word::kShardsSmallEvidence, {{"units", Num{units.value}},
                                                              {"smallest", Size{Least()}},
                                                              {"largest", Size{Most()}},
                                                              {"gathers", NumberOf(gathers_)},
                                                              {"reductions", NumberOf(scatters_)},
                                                              {"transfers", Ns{larger->transfers_ns}},
                                                              {"other_largest", up_to},
                                                              {"other_transfers", Ns{larger->transfers_then_ns}}})};
    finding.said.action = {Say(replayed_.run().torch ? Word::kShardsSmallTorchAction : Word::kShardsSmallAction,
                               {{"together", together}, {"other_largest", up_to}})};
    analysis_.fsdp.recommended_together = larger->together;
    finding.saves_ns_per_step = larger->gain_ns;
    finding.saves_interval_ns = larger->gain_interval_ns;
    finding.then = larger->limit;
    finding.replayed = true;
    if (larger->extrapolated) SayExtrapolated(finding);
    finding.explain = UnitRows();
    analysis_.findings.push_back(std::move(finding));
    return true;
  }

  // Units of one size say nothing of others. Where they are slower than any network, it is not their bytes that take
  // the time: fewer may be as slow each, or slower, and what there is to gain is known at most.
  bool TellUnitsAreMany(std::int64_t step_ns, std::int64_t worth_ns) {
    const auto fewer = FewerUnitsAtMost(replayed_.what_if(), replayed_.job(),
                                        rules::kGigabitEthernetBytesPerS / rules::kNetworkSharedTimes / 1e9);
    if (!fewer || fewer->gain_ns <= worth_ns || !fewer->gain_interval_ns || fewer->gain_interval_ns->first <= 0)
      return false;
    Finding finding;
    finding.id = FindingId::kFsdpUnits;
    const Index units{static_cast<std::int64_t>(fewer->units)};
    finding.said.headline = {Say(Word::kShardsSlow, {{"units", units}, {"largest", Size{Most()}}}),
                             Say(Word::kShardsSlowGain, {{"gain", Ns{fewer->gain_ns}}, {"step", Ns{step_ns}}})};
    finding.said.brief = {Say(Word::kShardsSlowBrief, {{"units", units}, {"largest", Size{Most()}}})};
    finding.said.evidence = {Say(Word::kShardsSlowEvidence, {{"gathers", NumberOf(gathers_)},
                                                             {"reductions", NumberOf(scatters_)},
                                                             {"transfers", Ns{fewer->transfers_ns}}})};
    finding.said.action = {Say(replayed_.run().torch ? Word::kShardsSlowTorchAction : Word::kShardsSlowAction)};
    finding.saves_ns_per_step = fewer->gain_ns;
    finding.saves_interval_ns = fewer->gain_interval_ns;
    finding.then = fewer->limit;
    finding.upper_bound = true;
    finding.replayed = true;
    finding.explain = UnitRows();
    analysis_.findings.push_back(std::move(finding));
    return true;
  }

  // What smaller units gain beyond gathering those of now earlier, which changes less. Whether a unit holds several
  // layers is not recorded, nor what a library and the program do for each: a bound.
  void TellSmallerUnits() {
    // Who lacks a core while data move has none to compute on beside them, and what moves in waits only hides nothing.
    if (analysis_.run.cores_scarce || analysis_.wait_only) return;
    const std::int64_t step = replayed_.what_if().replayed_step_ns();
    const auto worth = static_cast<std::int64_t>(rules::kWorthShare * static_cast<double>(step));
    const auto smaller = replay::FindSmallerUnits(replayed_.what_if(), replayed_.job(), replayed_.schedule(), worth);
    if (!smaller || smaller->gain_ns <= prefetched_ns_ + worth || !smaller->gain_interval_ns ||
        smaller->gain_interval_ns->first <= 0)
      return;
    Finding finding;
    finding.id = FindingId::kFsdpUnits;
    finding.said.headline = {
        Say(Word::kShardsLarge),
        Say(Word::kShardsLargeGain,
            {{"units", Units()}, {"largest", Size{Most()}}, {"gain", Ns{smaller->gain_ns}}, {"step", Ns{step}}})};
    finding.said.brief = {Say(Word::kShardsLargeBrief, {{"units", Units()}, {"largest", Size{Most()}}})};
    finding.said.evidence = {
        Say(Word::kShardsLargeEvidence, {{"gathers", NumberOf(gathers_)},
                                         {"reductions", Index{static_cast<std::int64_t>(reductions_)}},
                                         {"transfers", Ns{smaller->transfers_ns}},
                                         {"bare", Ns{smaller->bare_ns}},
                                         {"parts", Index{static_cast<std::int64_t>(smaller->parts)}}})};
    finding.said.action = {Say(replayed_.run().torch ? Word::kShardsLargeTorchAction : Word::kShardsLargeAction)};
    finding.saves_ns_per_step = smaller->gain_ns;
    finding.saves_interval_ns = smaller->gain_interval_ns;
    finding.then = smaller->limit;
    finding.upper_bound = true;
    finding.replayed = true;
    finding.explain = UnitRows();
    analysis_.findings.push_back(std::move(finding));
  }

  Evidence UnitRows() const {
    Evidence rows;
    rows.columns = {"unit", "bytes", "gather_exposed_ns", "scatter_exposed_ns"};
    for (const FsdpUnit& unit : analysis_.fsdp.units)
      rows.rows.push_back(
          {unit.unit, static_cast<std::int64_t>(unit.bytes), unit.gather_exposed_ns, unit.scatter_exposed_ns});
    return rows;
  }

  Num Units() const { return {static_cast<std::int64_t>(analysis_.fsdp.units.size())}; }
  // Of one rank and step.
  static Index NumberOf(const Uses& uses) { return {static_cast<std::int64_t>(uses[0][0].size())}; }
  std::uint64_t Least() const {
    std::uint64_t least = UINT64_MAX;
    for (const FsdpUnit& unit : analysis_.fsdp.units) least = std::min(least, unit.bytes);
    return least;
  }
  std::uint64_t Most() const {
    std::uint64_t most = 0;
    for (const FsdpUnit& unit : analysis_.fsdp.units) most = std::max(most, unit.bytes);
    return most;
  }

  const ReplayedRun& replayed_;
  Analysis& analysis_;
  Uses gathers_, scatters_;
  std::size_t reductions_ = 0;
  std::int64_t prefetched_ns_ = 0;  // What fsdp.prefetch gains, if it is told.
};

}  // namespace

void RecogniseShards(const Context& context, Analysis& analysis) {
  const ReplayedRun* replayed = context.Replayed();
  if (replayed != nullptr) Sharded(*replayed, analysis).Run();
}

}  // namespace lockstep::analysis
