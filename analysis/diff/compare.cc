#include "analysis/diff/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/core/format.h"

namespace lockstep::diff {
namespace {

std::string List(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

// The reason why these two cannot be compared; "" if they can.
std::string Incomparable(const RunSample& base, const RunSample& now) {
  // Where kernels were recorded, what one rank does in a step can be compared.
  if (base.ranks != now.ranks && (!base.names.kernels_per_step || !now.names.kernels_per_step))
    return fmt::format("{} against {}: steps of different numbers of ranks cannot be compared",
                       analysis::Plural(base.ranks, "rank"), analysis::Plural(now.ranks, "rank"));
  const auto kind = [](const RunSample& run) {
    const auto recorded = static_cast<std::int64_t>(run.rank_samples.size());
    return run.gpu_ranks == 0 ? "CPU" : run.gpu_ranks < recorded ? "partly GPU" : "GPU";
  };
  if (std::string_view(kind(base)) != kind(now))
    return fmt::format("a {} run against a {} run: compute is defined differently for the two", kind(base), kind(now));
  if (base.gpu_names != now.gpu_names)
    return fmt::format("other GPUs: {} against {}", List(base.gpu_names), List(now.gpu_names));
  if (base.steps_kind != now.steps_kind) {
    const auto said = [](const RunSample& run) { return run.steps_kind.empty() ? "no steps" : run.steps_kind; };
    return fmt::format("other kinds of steps: {} against {}", said(base), said(now));
  }
  if (base.classes != now.classes)
    return fmt::format("kernels were classified in two ways: {} against {}", base.classes, now.classes);
  return "";
}

std::string TooFew(const RunSample& base, const RunSample& now) {
  if (base.steps >= kEnoughSteps && now.steps >= kEnoughSteps) return "";
  if (base.steps == 0 && now.steps == 0)
    return "one recording of each, without complete steps, does not tell whether that is chance";
  const auto count = [](const RunSample& run) {
    return run.steps_kind.empty() ? std::string("no steps") : analysis::Count(run.steps);
  };
  return fmt::format(
      "both runs need {} complete steps after warm-up for a change of this size: base has {}, new has {}", kEnoughSteps,
      count(base), count(now));
}

std::string OtherRanks(const RunSample& base, const RunSample& now) {
  if (base.ranks == now.ranks) return "";
  return fmt::format("{} against {}: rank counts differ, so steps are not comparable",
                     analysis::Plural(base.ranks, "rank"), analysis::Plural(now.ranks, "rank"));
}

// Means over ranks for which the other run has no file do not show a change.
std::string OtherFiles(const RunSample& base, const RunSample& now) {
  const auto ranks = [](const RunSample& run) {
    std::set<std::int32_t> ranks;
    for (const RankSample& rank : run.rank_samples) ranks.insert(rank.rank);
    return ranks;
  };
  return ranks(base) == ranks(now) ? "" : "it is a mean over other ranks in each run";
}

std::string OtherCompute(const RunSample& base, const RunSample& now) {
  if (base.BlockedKnown() == now.BlockedKnown()) return "";
  return fmt::format("blocked time was recorded in the {} run only: compute of the other includes it",
                     base.BlockedKnown() ? "base" : "new");
}

Limit UsualLimit(const Measure& measure) {
  Limit limit;
  limit.measure = measure.name;
  limit.share = kOtherShare;
  limit.text = fmt::format("{}{:g} %", measure.less_is_better ? "+" : "-", 100 * kOtherShare);
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
      result.reason = result.base.count == 0 ? (result.now.count == 0 ? "neither run has this measure"
                                                                      : "the base run does not have this measure")
                                             : "the new run does not have this measure";
      if (!too_few_.empty()) result.reason = too_few_;
      return result;
    }
    const bool careful = !result.limit.asked && measure.name != std::string_view("step_ns");
    result.difference = too_few_.empty() ? DifferenceOf(result.base, result.now, careful ? kWiden99 : 1)
                                         : DifferenceOfFew(result.base, result.now, kWiden99);
    const double base = result.base.center;
    if (base > 0)
      result.relative = {result.difference.value / base, result.difference.low / base, result.difference.high / base};
    if (!other_ranks_.empty()) {
      result.reason = other_ranks_;
      return result;
    }
    if (!other_files_.empty() && measure.name != std::string_view("step_ns")) {
      result.reason = other_files_;
      return result;
    }
    if (measure.name == std::string_view("compute_ns"))
      if (result.reason = OtherCompute(comparison_.base, comparison_.now); !result.reason.empty()) return result;
    const double least = Least(result);
    const Difference& d = result.difference;
    if (!too_few_.empty()) {
      const double large = std::max(least, kFewStepsShare * std::fabs(result.base.center));
      const bool beyond = d.low > large || d.high < -large;
      if (beyond && std::min(result.base.count, result.now.count) >= kFewestSteps)
        result.verdict = (d.value > 0) == measure.less_is_better ? Verdict::kWorse : Verdict::kBetter;
      else
        result.reason = too_few_;
      return result;
    }
    if ((d.low > 0 || d.high < 0) && std::fabs(d.value) >= least && d.value != 0) {
      result.verdict = (d.value > 0) == measure.less_is_better ? Verdict::kWorse : Verdict::kBetter;
    } else if (d.low > -least && d.high < least) {
      result.verdict = Verdict::kSame;
    } else if (d.low == 0 && d.high == 0) {
      result.verdict = Verdict::kSame;
    } else {
      result.reason = d.low > 0 || d.high < 0 ? "it changed, but the limit is within its interval"
                                              : "its interval includes both no change and a change beyond the limit";
    }
    return result;
  }

 private:
  // The smallest change that counts, in the measure's unit.
  double Least(const MeasureResult& result) const {
    if (result.limit.absolute) return *result.limit.absolute;
    const double share = result.limit.share * std::fabs(result.base.center);
    if (result.limit.asked) return share;
    if (result.measure->fraction) return std::max(share, kOtherShare);
    return std::max(share, kOtherStepShare * step_ns_);
  }

  std::string other_ranks_, other_files_, too_few_;
  double step_ns_;
  const Comparison& comparison_;
};

std::string SignedDuration(double ns) {
  return (ns > 0 ? "+" : "") + analysis::Duration(static_cast<std::int64_t>(std::llround(ns)));
}

// The part of the step that changed most, in words.
std::string LargestPart(const std::vector<MeasureResult>& measures, bool grew) {
  const MeasureResult* largest = nullptr;
  for (const MeasureResult& result : measures) {
    const std::string_view name = result.measure->name;
    if (name != "compute_ns" && name != "blocked_ns" && name != "exposed_wait_ns" && name != "exposed_transfer_ns" &&
        name != "exposed_unsplit_ns" && name != "exposed_copy_ns" && name != "idle_ns")
      continue;
    if (result.verdict != (grew ? Verdict::kWorse : Verdict::kBetter)) continue;
    if (largest == nullptr || std::fabs(result.difference.value) > std::fabs(largest->difference.value))
      largest = &result;
  }
  if (largest == nullptr) return "";
  std::string_view name = largest->measure->text;
  name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
  if (largest->measure->name == "exposed_transfer_ns") name = "exposed transfer";
  if (largest->measure->name == "exposed_unsplit_ns") name = "unsplit communication";
  return fmt::format("{} {} on average over the ranks", name, SignedDuration(largest->difference.value));
}

std::string Sentence(const Comparison& c) {
  const MeasureResult& step = c.measures.front();
  const auto duration = [](double ns) { return analysis::Duration(static_cast<std::int64_t>(std::llround(ns))); };
  switch (c.verdict) {
    case Verdict::kCannotTell:
      if (c.base.steps == 0 && c.now.steps == 0 && step.relative)
        return fmt::format("The recording is {} long, it was {} ({:+.1f} %): {}.", duration(step.now.center),
                           duration(step.base.center), 100 * step.relative->value, step.reason);
      return "Whether a step takes longer cannot be decided: " + step.reason + ".";
    case Verdict::kSame:
      return fmt::format("A step takes as long as before: {} and {}.", duration(step.base.center),
                         duration(step.now.center));
    case Verdict::kBetter:
    case Verdict::kWorse:
      break;
  }
  const bool grew = c.verdict == Verdict::kWorse;
  std::string text = fmt::format("A step takes {} {}: {} became {} ({:+.1f} %).",
                                 duration(std::fabs(step.difference.value)), grew ? "longer" : "less",
                                 duration(step.base.center), duration(step.now.center), 100 * step.relative->value);
  if (const std::string part = LargestPart(c.measures, grew); !part.empty()) text.insert(text.size() - 1, ", " + part);
  if (!TooFew(c.base, c.now).empty())
    text.insert(text.size() - 1, fmt::format(", from {} and {}", analysis::Plural(c.base.steps, "step"), c.now.steps));
  return text;
}

// The causes that the data of the two runs support.
std::vector<Cause> SupportedCauses(const RunSample& base, const RunSample& now, const NameChanges& names) {
  std::vector<Cause> causes = FindCauses(base, now, names);
  const bool few = std::min(base.steps, now.steps) < kFewestSteps, other = base.ranks != now.ranks;
  std::erase_if(causes, [&](const Cause& cause) {
    // For single steps nothing has an interval; for different ranks only what one rank does by itself can be compared.
    if (few && cause.interval_ns) return true;
    return other && cause.kind != "kernel" && cause.kind != "operator" && cause.kind != "kernels_per_step" &&
           cause.kind != "gpu_clock";
  });
  return causes;
}

// Few steps may not decide by their length: the first one of a recording, say, is cut at its begin and another length.
// A part of them that is the same in each step of a run decides, if it changed by more than the limit of few steps and
// the steps did as it says: one cut step may lack all of that part.
void DecideByParts(Comparison& c) {
  MeasureResult& step = c.measures.front();
  const bool few = !TooFew(c.base, c.now).empty() && std::min(c.base.steps, c.now.steps) >= kFewestSteps;
  if (step.verdict != Verdict::kCannotTell || !few || c.base.ranks != c.now.ranks || !OtherFiles(c.base, c.now).empty())
    return;
  const double large =
      std::max(step.limit.absolute.value_or(step.limit.share * step.base.center), kFewStepsShare * step.base.center);
  const double changed = step.difference.value;
  if (large <= 0 || std::fabs(changed) < large) return;
  for (const Cause& cause : c.causes) {
    // A rank's own and a collective's need not change the step.
    if ((cause.kind != "phase" && cause.kind != "all_ranks") || !cause.interval_ns || !cause.change_ns) continue;
    const auto [low, high] = *cause.interval_ns;
    if (changed > 0 ? low < large : high > -large) continue;
    const double of_cut = std::fabs(*cause.change_ns) / static_cast<double>(std::min(c.base.steps, c.now.steps));
    if (std::fabs(changed - *cause.change_ns) > kFewStepsShare * step.base.center + of_cut) continue;
    step.verdict = changed > 0 ? Verdict::kWorse : Verdict::kBetter;
    step.reason.clear();
    c.verdict = step.verdict;
    c.regression = c.regression || (step.limit.asked && step.verdict == Verdict::kWorse);
    c.remarks.push_back("the steps are too few to decide by their length alone; what decides is a part of them: " +
                        cause.sentence);
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
  const auto duration = [](double ns) { return analysis::Duration(static_cast<std::int64_t>(std::llround(ns))); };
  c.remarks.push_back(
      fmt::format("{} of the base run and {} of the new one are long; without them a step takes {} and "
                  "{} ({:+.1f} %): {}",
                  analysis::Plural(c.base.long_steps, "step"), c.now.long_steps, duration(without.base.center),
                  duration(without.now.center), 100 * without.relative->value, Name(without.verdict)));
  if (step.verdict != Verdict::kCannotTell || without.verdict == Verdict::kCannotTell ||
      without.verdict == Verdict::kSame)
    return;
  step.verdict = c.verdict = without.verdict;
  step.reason.clear();
  c.regression = c.regression || (step.limit.asked && step.verdict == Verdict::kWorse);
}

void AddRemarks(Comparison& c) {
  const auto add = [&](std::string text) { c.remarks.push_back(std::move(text)); };
  for (const auto& [which, run] : {std::pair("base", &c.base), std::pair("new", &c.now)})
    for (const std::string& why : run->incomplete) add(fmt::format("the {} run is not complete: {}", which, why));
  if (c.base.rank_samples.size() != c.now.rank_samples.size() && c.base.ranks == c.now.ranks)
    add(fmt::format("means are over {} of the base run and {} of the new one", c.base.rank_samples.size(),
                    analysis::Plural(static_cast<std::int64_t>(c.now.rank_samples.size()), "rank")));
  if (c.base.job != c.now.job && !c.base.job.empty() && !c.now.job.empty())
    add(fmt::format("the programs are called differently: {} and {}", c.base.job, c.now.job));
  if (c.base.nodes != c.now.nodes && c.base.nodes > 0 && c.now.nodes > 0)
    add(fmt::format("{} against {}", analysis::Plural(c.base.nodes, "node"), analysis::Plural(c.now.nodes, "node")));
  if (c.base.lockstep_version != c.now.lockstep_version)
    add(fmt::format("made by Lockstep {} and {}", c.base.lockstep_version, c.now.lockstep_version));
  for (std::size_t kind = 0; kind < kNameKinds; ++kind) {
    const std::string nouns = fmt::format("{}s", Noun(static_cast<NameKind>(kind)));
    const bool before = c.base.names.recorded[kind], after = c.now.names.recorded[kind];
    if (before != after) add(fmt::format("{} were recorded in the {} run only", nouns, before ? "base" : "new"));
    if (const double factor = c.names.common[kind]; std::fabs(factor - 1) >= kOtherShare)
      add(fmt::format("all {} take {:.0f} % {} in common: what is listed is beyond that", nouns,
                      100 * std::fabs(factor - 1), factor > 1 ? "longer" : "less"));
  }
  if (c.base.shared_cores > 0 || c.now.shared_cores > 0)
    add("ranks share cores: their step times depend on the scheduler and differ from run to run");
}

}  // namespace

std::string_view Name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSame:
      return "same";
    case Verdict::kBetter:
      return "better";
    case Verdict::kWorse:
      return "worse";
    case Verdict::kCannotTell:
      break;
  }
  return "cannot tell";
}

Result<Comparison> Compare(RunSample base, RunSample now, const std::vector<Limit>& limits) {
  if (const std::string why = Incomparable(base, now); !why.empty())
    return Error{ErrorCode::kUnsupported, "these runs cannot be compared: " + why, base.label + " and " + now.label,
                 "compare runs of the same job, ranks and machines; steps need lockstep_step() or hooks in both"};
  Comparison c;
  c.base = std::move(base);
  c.now = std::move(now);
  const MeasureSample* step = c.base.Find("step_ns");
  const double step_ns = step == nullptr ? 0 : step->spread.center;
  const Comparer comparer(c, step_ns);
  for (const Measure& measure : Measures()) {
    const auto asked =
        std::find_if(limits.begin(), limits.end(), [&](const Limit& limit) { return limit.measure == measure.name; });
    Limit limit = asked != limits.end() ? *asked : UsualLimit(measure);
    // The step always has its own limit, whatever else is requested.
    if (asked == limits.end() && measure.name == std::string_view("step_ns"))
      limit = ParseLimits(kDefaultLimits).value().front(), limit.asked = false;
    MeasureResult result = comparer.Of(measure, std::move(limit));
    const bool nothing =
        (result.base.count == 0 && result.now.count == 0) ||
        (result.base.center == 0 && result.now.center == 0 && result.base.high == 0 && result.now.high == 0);
    const bool wanted = asked != limits.end() || measure.name == std::string_view("step_ns");
    if (nothing && !wanted) continue;
    c.regression = c.regression || (result.limit.asked && result.verdict == Verdict::kWorse);
    c.measures.push_back(std::move(result));
  }
  c.verdict = c.measures.front().verdict;
  c.names = CompareNames(c.base.names, c.now.names, std::min(c.base.steps, c.now.steps), step_ns);
  c.causes = SupportedCauses(c.base, c.now, c.names);
  CompareWithoutLongSteps(c, comparer);
  DecideByParts(c);
  c.sentence = Sentence(c);
  AddRemarks(c);
  return c;
}

}  // namespace lockstep::diff
