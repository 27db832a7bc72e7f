// Sharded parameters (FSDP and similar): which units are gathered before they are used, how long compute waits for
// them, and what gathering them earlier, fewer and larger ones, or more and smaller ones would gain.

#include <fmt/format.h>

#include <algorithm>

#include "analysis/choose_findings.h"
#include "analysis/communication/link.h"
#include "analysis/core/format.h"
#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "analysis/replay/graph/units.h"
#include "analysis/replay/questions/larger_units.h"
#include "analysis/replay/questions/prefetch.h"
#include "analysis/replay/questions/smaller_units.h"
#include "analysis/replayed/replayed_run.h"

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
    const auto worth = static_cast<std::int64_t>(kWorthShare * static_cast<double>(step));
    std::optional<Answer> best;
    std::size_t depth = 0;
    for (const std::size_t each : {std::size_t{1}, std::size_t{2}, std::size_t{4}}) {
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
    finding.headline = fmt::format("Parameters are gathered too late: earlier, a step of {} would be {} shorter{}.",
                                   Duration(step), Duration(best->gain_ns), at_most ? " at best" : "");
    finding.brief = fmt::format("parameters gathered too late: {} ahead is enough",
                                Plural(static_cast<std::int64_t>(depth), "unit"));
    const std::string least = Bytes(Least()), most = Bytes(Most());
    finding.evidence = fmt::format("{} of {}{}; compute waits {} per step for their all-gathers",
                                   Plural(static_cast<std::int64_t>(analysis_.fsdp.units.size()), "unit"), least,
                                   least == most ? "" : " to " + most, Duration(exposed));
    finding.action = best->try_it;
    analysis_.fsdp.recommended_depth = depth;
    prefetched_ns_ = best->gain_ns;
    finding.saves_ns_per_step = best->gain_ns;
    finding.saves_interval_ns = best->gain_interval_ns;
    finding.then = best->limit;
    finding.replayed = true;
    finding.upper_bound = at_most;
    finding.confidence = at_most ? 0.4 : 0.6;
    finding.explain = UnitRows();
    analysis_.findings.push_back(std::move(finding));
  }

  // Whether it told of them.
  bool TellLargerUnits() {
    const std::int64_t step = replayed_.what_if().replayed_step_ns();
    const auto worth = static_cast<std::int64_t>(kWorthShare * static_cast<double>(step));
    const std::optional<replay::LargerUnits> larger = FindLargerUnits(replayed_.what_if(), replayed_.job(), worth);
    if (!larger || larger->gain_ns <= worth || !larger->gain_interval_ns || larger->gain_interval_ns->first <= 0)
      return TellUnitsAreMany(step, worth);
    const std::size_t fewer = (larger->units + larger->together - 1) / larger->together;
    const std::string up_to = Bytes(Most() * larger->together);
    Finding finding;
    finding.id = FindingId::kFsdpUnits;
    finding.headline =
        fmt::format("Units of sharded parameters are too small: {} in place of {} would save {} of each {} step.",
                    fewer, larger->units, Duration(larger->gain_ns), Duration(step));
    finding.brief = fmt::format("units of sharded parameters too small: {} in place of {}", fewer, larger->units);
    finding.evidence = fmt::format(
        "{} of {} to {}; their {} all-gathers and {} reductions take {} per step, those of units of up to "
        "{} {}; what the program itself does for each unit comes on top",
        Plural(static_cast<std::int64_t>(larger->units), "unit"), Bytes(Least()), Bytes(Most()), gathers_[0][0].size(),
        scatters_[0][0].size(), Duration(larger->transfers_ns), up_to, Duration(larger->transfers_then_ns));
    finding.action = replayed_.run().torch
                         ? fmt::format(
                               "make each {0} of them one unit, FSDP2: fully_shard([*layers[i:i + {0}]]), FSDP: "
                               "a coarser auto_wrap_policy; each gathers up to {1} of memory",
                               larger->together, up_to)
                         : fmt::format("gather and reduce each {} of them at once; each gathers up to {} of memory",
                                       larger->together, up_to);
    analysis_.fsdp.recommended_together = larger->together;
    finding.saves_ns_per_step = larger->gain_ns;
    finding.saves_interval_ns = larger->gain_interval_ns;
    finding.then = larger->limit;
    finding.replayed = true;
    if (larger->extrapolated) SayExtrapolated(finding);
    finding.confidence = larger->extrapolated ? 0.4 : 0.6;
    finding.explain = UnitRows();
    analysis_.findings.push_back(std::move(finding));
    return true;
  }

  // Units of one size say nothing of others. Where they are slower than any network, it is not their bytes that take
  // the time: fewer may be as slow each, or slower, and what there is to gain is known at most.
  bool TellUnitsAreMany(std::int64_t step_ns, std::int64_t worth_ns) {
    const auto fewer = FewerUnitsAtMost(replayed_.what_if(), replayed_.job(), kSlowestNetwork / kShared / 1e9);
    if (!fewer || fewer->gain_ns <= worth_ns || !fewer->gain_interval_ns || fewer->gain_interval_ns->first <= 0)
      return false;
    Finding finding;
    finding.id = FindingId::kFsdpUnits;
    finding.headline = fmt::format(
        "Each step gathers and reduces {} units of {}, and it is not their size that makes them slow: the transfers of "
        "fewer, larger units take at most {} less of each {} step.",
        fewer->units, Bytes(Most()), Duration(fewer->gain_ns), Duration(step_ns));
    finding.brief = fmt::format("{} units of {}: fewer, larger ones may be faster", fewer->units, Bytes(Most()));
    finding.evidence = fmt::format(
        "their {} all-gathers and {} reductions take {} per step, which no network needs for so many bytes; replayed "
        "with 2 units of which each takes as long as one does now; what the program itself does for each unit comes on "
        "top",
        gathers_[0][0].size(), scatters_[0][0].size(), Duration(fewer->transfers_ns));
    finding.action = fmt::format("record a run with fewer units, and compare: lockstep diff RUN OTHER{}",
                                 replayed_.run().torch ? "; FSDP2: fully_shard([*layers[i:i + 4]]), FSDP: a coarser "
                                                         "auto_wrap_policy"
                                                       : "");
    finding.saves_ns_per_step = fewer->gain_ns;
    finding.saves_interval_ns = fewer->gain_interval_ns;
    finding.then = fewer->limit;
    finding.upper_bound = true;
    finding.replayed = true;
    finding.confidence = 0.3;
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
    const auto worth = static_cast<std::int64_t>(kWorthShare * static_cast<double>(step));
    const auto smaller = replay::FindSmallerUnits(replayed_.what_if(), replayed_.job(), replayed_.schedule(), worth);
    if (!smaller || smaller->gain_ns <= prefetched_ns_ + worth || !smaller->gain_interval_ns ||
        smaller->gain_interval_ns->first <= 0)
      return;
    const std::string units = Plural(static_cast<std::int64_t>(analysis_.fsdp.units.size()), "unit");
    Finding finding;
    finding.id = FindingId::kFsdpUnits;
    finding.headline = fmt::format(
        "Units of sharded parameters are so large that little hides their transfers: {} of {}; smaller ones save at "
        "most {} of each {} step.",
        units, Bytes(Most()), Duration(smaller->gain_ns), Duration(step));
    finding.brief = fmt::format("units of sharded parameters too large: {} of {}", units, Bytes(Most()));
    finding.evidence = fmt::format(
        "their {} all-gathers and {} reductions take {} per step, {} of that with no work beside it; replayed with {} "
        "parts of each, of which all but one may hide beside the unit's own work; whether a unit holds so many layers "
        "is not "
        "recorded",
        gathers_[0][0].size(), reductions_, Duration(smaller->transfers_ns), Duration(smaller->bare_ns),
        smaller->parts);
    finding.action =
        replayed_.run().torch
            ? "if a unit holds several layers, make each layer one, FSDP2: fully_shard(layer) for each, before "
              "fully_shard(model); FSDP: auto_wrap_policy"
            : "if a unit holds several layers, gather and reduce each of them by itself, the next one while one "
              "computes";
    finding.saves_ns_per_step = smaller->gain_ns;
    finding.saves_interval_ns = smaller->gain_interval_ns;
    finding.then = smaller->limit;
    finding.upper_bound = true;
    finding.replayed = true;
    finding.confidence = 0.4;
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
