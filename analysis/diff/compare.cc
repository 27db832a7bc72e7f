#include "analysis/diff/compare.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "analysis/rules/diff.h"
#include "analysis/words/render.h"
#include "core/rules/common.h"

namespace lockstep::diff {
namespace {

using analysis::Clause;
using analysis::Clauses;
using analysis::If;
using analysis::Index;
using analysis::Names;
using analysis::Ns;
using analysis::Num;
using analysis::Real;
using analysis::Value;
using analysis::Word;

constexpr std::string_view kStep = "step_ns", kCompute = "compute_ns";

Ns Time(double ns) { return {std::llround(ns)}; }
Clauses One(Clause clause) { return {{std::move(clause)}}; }

std::optional<Clause> OtherRanks(const RunSample& base, const RunSample& now) {
  if (base.ranks == now.ranks) return std::nullopt;
  return Say(Word::kDiffOtherRanks, {{"base", Num{base.ranks}}, {"now", Num{now.ranks}}});
}

std::optional<Clause> OtherGpus(const RunSample& base, const RunSample& now) {
  if (base.gpu_names == now.gpu_names) return std::nullopt;
  const auto gpus = [](const RunSample& run) -> Value {
    if (run.gpu_names.empty()) return One(Say(Word::kDiffNone));
    return Names{run.gpu_names};
  };
  return Say(Word::kDiffGpuNames, {{"base", gpus(base)}, {"now", gpus(now)}});
}

// The reason why these two cannot be compared, if they cannot.
std::optional<Clause> Incomparable(const RunSample& base, const RunSample& now, bool other_gpus) {
  // Where kernels were recorded, what one rank does in a step can be compared.
  if (base.ranks != now.ranks && (!base.names.kernels_per_step || !now.names.kernels_per_step))
    return OtherRanks(base, now);
  const auto kind = [](const RunSample& run) {
    const auto recorded = static_cast<std::int64_t>(run.rank_samples.size());
    return run.gpu_ranks == 0 ? Word::kDiffOnCpu : run.gpu_ranks < recorded ? Word::kDiffPartlyOnGpu : Word::kDiffOnGpu;
  };
  if (kind(base) != kind(now))
    return Say(Word::kDiffProcessors, {{"base", One(Say(kind(base)))}, {"now", One(Say(kind(now)))}});
  if (!other_gpus)
    if (std::optional<Clause> gpus = OtherGpus(base, now)) return gpus;
  if (base.steps_kind != now.steps_kind) {
    const auto steps = [](const RunSample& run) -> Value {
      if (run.steps_kind.empty()) return One(Say(Word::kDiffNoSteps));
      return run.steps_kind;
    };
    return Say(Word::kDiffStepKinds, {{"base", steps(base)}, {"now", steps(now)}});
  }
  if (base.classes != now.classes) return Say(Word::kDiffClasses, {{"base", base.classes}, {"now", now.classes}});
  return std::nullopt;
}

// Few steps may all come from one phase of the run, which their interval does not show.
std::optional<Clause> TooFew(const RunSample& base, const RunSample& now) {
  if (std::cmp_greater_equal(std::min(base.steps, now.steps), rules::kEnough)) return std::nullopt;
  if (base.steps == 0 && now.steps == 0) return Say(Word::kDiffNoComplete);
  const auto count = [](const RunSample& run) -> Value {
    if (run.steps_kind.empty()) return One(Say(Word::kDiffNoSteps));
    return Num{run.steps};
  };
  return Say(Word::kDiffTooFew,
             {{"least", Num{static_cast<std::int64_t>(rules::kEnough)}}, {"base", count(base)}, {"now", count(now)}});
}

// Means over ranks for which the other run has no file do not show a change.
std::optional<Clause> OtherFiles(const RunSample& base, const RunSample& now) {
  const auto ranks = [](const RunSample& run) {
    std::set<std::int32_t> ranks;
    for (const RankSample& rank : run.rank_samples) ranks.insert(rank.rank);
    return ranks;
  };
  if (ranks(base) == ranks(now)) return std::nullopt;
  return Say(Word::kDiffOtherFiles);
}

std::optional<Clause> OtherCompute(const RunSample& base, const RunSample& now) {
  if (base.BlockedKnown() == now.BlockedKnown()) return std::nullopt;
  return Say(Word::kDiffOtherCompute, {{"base", base.BlockedKnown()}});
}

Limit UsualLimit(const Measure& measure) {
  Limit limit;
  limit.measure = measure.name;
  limit.share = rules::kChangedShare;
  limit.text = Told(Word::kDiffLimit, {{"more", measure.less_is_better}, {"share", Real{100 * limit.share}}});
  return limit;
}

class Comparer {
 public:
  Comparer(const Comparison& comparison, double step_ns)
      : other_ranks_(OtherRanks(comparison.base, comparison.now)),
        other_files_(OtherFiles(comparison.base, comparison.now)),
        too_few_(TooFew(comparison.base, comparison.now)),
        step_ns_(step_ns),
        comparison_(comparison) {}

  MeasureResult Of(const Measure& measure, Limit limit) const {
    Spread base, now;
    if (const MeasureSample* sample = comparison_.base.Find(measure.name)) base = sample->spread;
    if (const MeasureSample* sample = comparison_.now.Find(measure.name)) now = sample->spread;
    return Of(measure, std::move(limit), base, now);
  }

  MeasureResult Of(const Measure& measure, Limit limit, const Spread& base_spread, const Spread& now_spread) const {
    MeasureResult result;
    result.measure = &measure;
    result.limit = std::move(limit);
    result.base = base_spread;
    result.now = now_spread;
    if (result.base.count == 0 || result.now.count == 0) {
      const bool in_base = result.base.count > 0, in_now = result.now.count > 0;
      result.reason = too_few_;
      if (!too_few_)
        result.reason = in_base || in_now ? Say(Word::kDiffNotInOne, {{"base", !in_base}}) : Say(Word::kDiffNotInBoth);
      return result;
    }
    result.difference = too_few_ ? DifferenceOfFew(result.base, result.now, rules::kDiffWiden99)
                                 : DifferenceOf(result.base, result.now, rules::kDiffWiden99);
    const double base = result.base.center;
    if (base > 0)
      result.relative = {result.difference.value / base, result.difference.low / base, result.difference.high / base};
    if (other_ranks_) {
      result.reason = other_ranks_;
      return result;
    }
    if (other_files_ && measure.name != kStep) {
      result.reason = other_files_;
      return result;
    }
    if (measure.name == kCompute)
      if (result.reason = OtherCompute(comparison_.base, comparison_.now); result.reason) return result;
    Decide(result);
    return result;
  }

 private:
  void Decide(MeasureResult& result) const {
    const Difference& d = result.difference;
    const double limit = LimitOf(result), least = Least(result);
    const double large = too_few_ ? std::max(least, rules::kLittle * std::fabs(result.base.center)) : 0;
    const bool steps =
        !too_few_ || std::cmp_greater_equal(std::min(result.base.count, result.now.count), rules::kMiddle);
    const bool certain = d.low > large || d.high < -large;
    if (certain && steps && std::fabs(d.value) >= least && d.value != 0) {
      result.verdict = (d.value > 0) == result.measure->less_is_better ? Verdict::kWorse : Verdict::kBetter;
      // Of few steps the whole interval must be beyond it.
      const double surely = too_few_ ? std::max(d.low, -d.high) : std::fabs(d.value);
      result.beyond_limit = result.verdict == Verdict::kWorse && surely >= limit;
    } else if (too_few_) {
      result.reason = too_few_;
    } else if (const double within = result.measure->name == kStep ? limit : least;
               (d.low > -within && d.high < within) || (d.low == 0 && d.high == 0)) {
      result.verdict = Verdict::kSame;
    } else {
      result.reason = Say(d.low > 0 || d.high < 0 ? Word::kDiffLimitWithin : Word::kDiffOpen);
    }
  }

  double LimitOf(const MeasureResult& result) const {
    return result.limit.absolute.value_or(result.limit.share * std::fabs(result.base.center));
  }

  // The smallest change that makes a verdict, in the measure's unit. That of the step is whatever can be told.
  double Least(const MeasureResult& result) const {
    const double base = std::fabs(result.base.center);
    if (result.measure->name == kStep) return rules::kDiffLeastShown * base;
    const double usual = std::max(rules::kChangedShare * base,
                                  result.measure->fraction ? rules::kChangedShare : rules::kWorthShare * step_ns_);
    return result.limit.asked ? std::min(usual, LimitOf(result)) : usual;
  }

  std::optional<Clause> other_ranks_, other_files_, too_few_;
  double step_ns_;
  const Comparison& comparison_;
};

// The part of the step that changed most, in words.
Clauses LargestPart(const std::vector<MeasureResult>& measures, bool grew) {
  const MeasureResult* largest = nullptr;
  for (const MeasureResult& result : measures) {
    if (!result.measure->part || result.verdict != (grew ? Verdict::kWorse : Verdict::kBetter)) continue;
    if (largest == nullptr || std::fabs(result.difference.value) > std::fabs(largest->difference.value))
      largest = &result;
  }
  if (largest == nullptr) return {};
  const double by_ns = largest->difference.value;
  return One(
      Say(Word::kDiffPart, {{"part", One(Say(*largest->measure->part))}, {"grew", by_ns > 0}, {"by", Time(by_ns)}}));
}

std::string Sentence(const Comparison& c) {
  const MeasureResult& step = c.measures.front();
  const Ns base = Time(step.base.center), now = Time(step.now.center);
  Clauses change;
  if (step.relative) {
    // Few steps may be decided by something else than their length.
    const bool decides = c.verdict == Verdict::kSame || c.verdict == Verdict::kCannotTell || step.difference.low > 0 ||
                         step.difference.high < 0;
    const bool wide = decides && step.difference.low < step.difference.high;
    change = One(Say(Word::kDiffChangeWithin, {{"change", Real{100 * step.relative->value}},
                                               {"low", If(wide, Real{100 * step.relative->low})},
                                               {"high", If(wide, Real{100 * step.relative->high})}}));
  }
  const Value reason = step.reason ? Value(One(*step.reason)) : Value();
  switch (c.verdict) {
    case Verdict::kCannotTell:
      if (c.base.steps == 0 && c.now.steps == 0 && step.relative)
        return Told(Word::kDiffRecordings,
                    {{"now", now}, {"base", base}, {"change", Real{100 * step.relative->value}}, {"reason", reason}});
      if (step.reason && step.reason->word == Word::kDiffOpen)
        return Told(Word::kDiffNotShown, {{"base", base}, {"now", now}, {"change", change}, {"reason", reason}});
      return Told(Word::kDiffUndecided, {{"reason", reason}});
    case Verdict::kSame:
      return Told(Word::kDiffNotShown, {{"base", base}, {"now", now}, {"change", change}, {"reason", Value()}});
    case Verdict::kBetter:
    case Verdict::kWorse:
      break;
  }
  const bool grew = c.verdict == Verdict::kWorse, few = TooFew(c.base, c.now).has_value();
  return Told(Word::kDiffStep, {{"by", Time(std::fabs(step.difference.value))},
                                {"longer", grew},
                                {"base", base},
                                {"now", now},
                                {"change", change},
                                {"part", LargestPart(c.measures, grew)},
                                {"base_steps", If(few, Num{c.base.steps})},
                                {"now_steps", Index{c.now.steps}}});
}

// The causes that the data of the two runs support.
std::vector<Cause> SupportedCauses(const RunSample& base, const RunSample& now, const NameChanges& names) {
  std::vector<Cause> causes = FindCauses(base, now, names);
  const bool few = std::cmp_less(std::min(base.steps, now.steps), rules::kMiddle), other = base.ranks != now.ranks;
  std::erase_if(causes, [&](const Cause& cause) {
    // For single steps nothing has an interval; for different ranks only what one rank does by itself can be compared.
    if (few && cause.interval_ns) return true;
    return other && cause.kind != CauseKind::kKernel && cause.kind != CauseKind::kOperator &&
           cause.kind != CauseKind::kKernelsPerStep && cause.kind != CauseKind::kGpuClock;
  });
  return causes;
}

// Few steps may not decide by their length: the first one of a recording, say, is cut at its begin and another length.
// A part of them that is the same in each step of a run decides, if it changed by more than the limit of few steps and
// the steps did as it says: one cut step may lack all of that part.
void DecideByParts(Comparison& c) {
  MeasureResult& step = c.measures.front();
  const bool few = TooFew(c.base, c.now) && std::cmp_greater_equal(std::min(c.base.steps, c.now.steps), rules::kMiddle);
  if (step.verdict != Verdict::kCannotTell || !few || c.base.ranks != c.now.ranks || OtherFiles(c.base, c.now)) return;
  const double large = rules::kLittle * step.base.center;
  const double changed = step.difference.value;
  if (large <= 0 || std::fabs(changed) < large) return;
  for (const Cause& cause : c.causes) {
    // A rank's own and a collective's need not change the step.
    if ((cause.kind != CauseKind::kPhase && cause.kind != CauseKind::kAllRanks) || !cause.interval_ns ||
        !cause.change_ns)
      continue;
    const auto [low, high] = *cause.interval_ns;
    if (changed > 0 ? low < large : high > -large) continue;
    const double of_cut = std::fabs(*cause.change_ns) / static_cast<double>(std::min(c.base.steps, c.now.steps));
    if (std::fabs(changed - *cause.change_ns) > rules::kLittle * step.base.center + of_cut) continue;
    step.verdict = changed > 0 ? Verdict::kWorse : Verdict::kBetter;
    step.beyond_limit = std::min(changed, low) >= step.limit.absolute.value_or(step.limit.share * step.base.center);
    step.reason.reset();
    c.verdict = step.verdict;
    c.remarks.push_back(Told(Word::kDiffByPart, {{"part", cause.sentence}}));
    return;
  }
}

// A few long steps may decide a mean, and widen its interval: what the others did is said beside it, and decides where
// all of them cannot.
void CompareWithoutLongSteps(Comparison& c, const Comparer& comparer) {
  if (c.base.long_steps == 0 && c.now.long_steps == 0) return;
  MeasureResult& step = c.measures.front();
  const auto others = [](const RunSample& run, const Spread& all) {
    return run.long_steps > 0 ? run.other_steps_ns : all;
  };
  const MeasureResult without =
      comparer.Of(*step.measure, step.limit, others(c.base, step.base), others(c.now, step.now));
  if (!without.relative) return;
  c.remarks.push_back(Told(Word::kDiffWithoutLong, {{"base_long", Num{c.base.long_steps}},
                                                    {"now_long", Index{c.now.long_steps}},
                                                    {"base", Time(without.base.center)},
                                                    {"now", Time(without.now.center)},
                                                    {"change", Real{100 * without.relative->value}},
                                                    {"verdict", std::string(Name(without.verdict))}}));
  if (step.verdict != Verdict::kCannotTell || without.verdict == Verdict::kCannotTell ||
      without.verdict == Verdict::kSame)
    return;
  step.verdict = c.verdict = without.verdict;
  step.beyond_limit = without.beyond_limit;
  step.reason.reset();
}

void AddRemarks(Comparison& c) {
  const auto add = [&](Word word, std::initializer_list<analysis::Fact> facts = {}) {
    c.remarks.push_back(Told(word, facts));
  };
  for (const RunSample* run : {&c.base, &c.now})
    for (const std::string& why : run->incomplete) add(Word::kDiffIncomplete, {{"base", run == &c.base}, {"why", why}});
  if (c.base.rank_samples.size() != c.now.rank_samples.size() && c.base.ranks == c.now.ranks)
    add(Word::kDiffMeansOver, {{"base", Num{static_cast<std::int64_t>(c.base.rank_samples.size())}},
                               {"now", Num{static_cast<std::int64_t>(c.now.rank_samples.size())}}});
  if (c.base.job != c.now.job && !c.base.job.empty() && !c.now.job.empty())
    add(Word::kDiffPrograms, {{"base", c.base.job}, {"now", c.now.job}});
  if (const std::optional<Clause> gpus = OtherGpus(c.base, c.now)) c.remarks.push_back(Rendered(*gpus));
  if (c.base.nodes != c.now.nodes && c.base.nodes > 0 && c.now.nodes > 0)
    add(Word::kDiffNodes, {{"base", Num{c.base.nodes}}, {"now", Num{c.now.nodes}}});
  if (c.base.lockstep_version != c.now.lockstep_version)
    add(Word::kDiffVersions, {{"base", c.base.lockstep_version}, {"now", c.now.lockstep_version}});
  for (std::size_t kind = 0; kind < kNameKinds; ++kind) {
    const std::string noun = Noun(static_cast<NameKind>(kind));
    const bool before = c.base.names.recorded[kind], after = c.now.names.recorded[kind];
    if (before != after) add(Word::kDiffNamesOfOne, {{"nouns", noun + "s"}, {"base", before}});
    if (const double factor = c.names.common[kind]; std::fabs(factor - 1) >= rules::kChangedShare)
      add(Word::kDiffInCommon, {{"noun", noun},
                                {"nouns", noun + "s"},
                                {"share", Real{100 * std::fabs(factor - 1)}},
                                {"longer", factor > 1}});
  }
  if (c.base.shared_cores > 0 || c.now.shared_cores > 0) add(Word::kDiffSharedCores);
}

}  // namespace

std::string_view Name(Verdict verdict) {
  static constexpr Word kWords[] = {Word::kDiffSame, Word::kDiffBetter, Word::kDiffWorse, Word::kDiffCannotTell};
  return TextOf(kWords[static_cast<std::size_t>(verdict)]);
}

Error SameRun(const std::string& base, const std::string& now) {
  return {ErrorCode::kUsage, Told(Word::kDiffSameRun), base == now ? base : base + " and " + now,
          Told(Word::kDiffSameRunAction)};
}

Result<Comparison> Compare(RunSample base, RunSample now, const std::vector<Limit>& limits, bool other_gpus) {
  // Not by the id alone: a later job may have the same, and traces of as many bytes.
  if (!base.run_id.empty() && base.run_id == now.run_id && BaselineJson(base) == BaselineJson(now))
    return SameRun(base.label, now.label);
  if (const std::optional<Clause> why = Incomparable(base, now, other_gpus))
    return Error{ErrorCode::kUnsupported, Told(Word::kDiffIncomparable, {{"why", One(*why)}}),
                 base.label + " and " + now.label,
                 Told(why->word == Word::kDiffGpuNames ? Word::kDiffOtherGpusAction : Word::kDiffIncomparableAction)};
  Comparison c;
  c.base = std::move(base);
  c.now = std::move(now);
  const MeasureSample* step = c.base.Find(kStep);
  const double step_ns = step == nullptr ? 0 : step->spread.center;
  const Comparer comparer(c, step_ns);
  for (const Measure& measure : Measures()) {
    const auto asked =
        std::find_if(limits.begin(), limits.end(), [&](const Limit& limit) { return limit.measure == measure.name; });
    Limit limit = asked != limits.end() ? *asked : UsualLimit(measure);
    // The step always has its own limit, whatever else is requested.
    if (asked == limits.end() && measure.name == kStep)
      limit = ParseLimits(kDefaultLimits).value().front(), limit.asked = false;
    MeasureResult result = comparer.Of(measure, std::move(limit));
    const bool nothing =
        (result.base.count == 0 && result.now.count == 0) ||
        (result.base.center == 0 && result.now.center == 0 && result.base.high == 0 && result.now.high == 0);
    const bool wanted = asked != limits.end() || measure.name == kStep;
    if (nothing && !wanted) continue;
    c.measures.push_back(std::move(result));
  }
  c.verdict = c.measures.front().verdict;
  c.names = CompareNames(c.base.names, c.now.names, std::min(c.base.steps, c.now.steps), step_ns);
  c.causes = SupportedCauses(c.base, c.now, c.names);
  CompareWithoutLongSteps(c, comparer);
  DecideByParts(c);
  c.regression = std::ranges::any_of(c.measures, &MeasureResult::Regressed);
  c.sentence = Sentence(c);
  AddRemarks(c);
  return c;
}

}  // namespace lockstep::diff
