// The first sentence of the report and the lines directly below it.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/choose_findings.h"
#include "analysis/core/format.h"
#include "analysis/core/source.h"
#include "analysis/passes.h"
#include "analysis/run/ranks_recorded.h"
#include "core/loss.h"

namespace lockstep::analysis {
namespace {

const Finding* FindingOf(const Analysis& analysis, FindingId id) {
  for (const Finding& finding : analysis.findings)
    if (finding.id == id) return &finding;
  return nullptr;
}

// The finding in the verdict: the first of the list, so that no other has a higher price.
const Finding* MostWorth(const Analysis& analysis) {
  const auto at = std::find_if(analysis.findings.begin(), analysis.findings.end(),
                               [](const Finding& f) { return f.id != FindingId::kWarmupCaptured; });
  return at == analysis.findings.end() ? nullptr : &*at;
}

std::string OfTheOneThereIs(const Analysis& analysis) {
  const Finding* first = MostWorth(analysis);
  return first != nullptr ? " " + first->headline : std::string();
}

// The sentence for a healthy run, with what was checked.
std::string Nothing(const Analysis& analysis) {
  const Summary& s = analysis.summary;
  std::vector<std::string> looked;
  if (analysis.run.ranks > 1) looked.insert(looked.end(), {"late ranks", "exposed communication"});
  looked.push_back("input");
  if (analysis.run.gpu_ranks > 0) looked.insert(looked.end(), {"host syncs", "launches", "copies", "memory"});
  if (s.per_step) looked.push_back("periodic bursts");
  std::string list;
  for (std::size_t i = 0; i < looked.size(); ++i)
    list += (i == 0 ? "" : i + 1 == looked.size() ? " and " : ", ") + looked[i];
  return fmt::format("nothing found that costs more than {:.0f} % of {} (checked: {}).", 100 * kNameShare,
                     s.per_step ? fmt::format("each {} step", Duration(s.terms.Sum())) : "the time", list);
}

bool Communicates(const Context& context) {
  if (context.tables().collectives.rows() > 0) return true;
  const auto& totals = context.tables().rank_totals;
  for (std::size_t i = 0; i < totals.rows(); ++i)
    if (totals.comm_high_ns[i] > 0 || totals.comm_ns[i] > 0) return true;
  return false;
}

bool OneSided(const Context& context) {
  const auto& rma_ns = context.tables().rank_totals.mpi_rma_ns;
  return std::any_of(rma_ns.begin(), rma_ns.end(), [](std::int64_t ns) { return ns > 0; });
}

// Whether a loss says already why nothing was recorded.
bool SaysWhy(const LossRow& loss) {
  constexpr Loss kReasons[] = {Loss::kPreloadLost, Loss::kNoRing, Loss::kSelfTestFailed, Loss::kPythonIsolated};
  return std::any_of(std::begin(kReasons), std::end(kReasons), [&](Loss why) { return loss.name == Info(why).name; });
}

// Steps of the host in which the GPUs got nothing to do: what was recorded outside of them says nothing of the job.
std::string NothingInSteps(const Analysis& analysis) {
  const RunFacts& run = analysis.run;
  if (run.gpu_ranks == 0 || run.steps > 0 || run.incomplete_steps == 0) return "";
  for (const LossRow& loss : analysis.losses)
    if (loss.name == Info(Loss::kStepIncomplete).name &&
        loss.detail.find("no kernel was launched") != std::string::npos)
      return fmt::format(
          "No kernel was launched in {}: the GPU is idle for all of {}, and what was recorded outside of "
          "{} is not judged.",
          run.incomplete_steps == 1 ? std::string("the only step that is marked")
                                    : fmt::format("any of the {} marked steps", run.incomplete_steps),
          run.incomplete_steps == 1 ? "it" : "them", run.incomplete_steps == 1 ? "it" : "them");
  return "";
}

std::string Sentence(const Context& context, Analysis& analysis) {
  const RunFacts& run = analysis.run;
  const bool communicates = Communicates(context);
  const std::string idle = NothingInSteps(analysis);
  if (run.ranks == 0) {
    analysis.suspicious = true;
    return "No rank left a readable file: there is nothing to analyse.";
  }
  if (analysis.trust.events == 0 && analysis.unrecorded.empty() && !communicates && analysis.summary.terms.Sum() == 0) {
    analysis.suspicious = true;
    return fmt::format("No event was recorded on {}: there is nothing to analyse.", Plural(run.ranks, "rank"));
  }
  // A profiler that is stopped as its step begins writes this: the step's own range and nothing within it.
  if (const auto marks = static_cast<std::int64_t>(context.tables().step_ranks.rows());
      marks > 0 && analysis.trust.events <= marks && !communicates && !SourceOf(context.timeline()).imported.empty()) {
    analysis.suspicious = true;
    return fmt::format("Nothing was recorded within {} of {}: there is nothing to analyse.",
                       run.steps == 1 ? "the only step" : "any step", Plural(run.ranks, "rank"));
  }
  if (run.ranks_expected > 1 && run.ranks == 1 && !run.ranks_left_out.empty())
    return "Only one rank was recorded: nothing to compare." + OfTheOneThereIs(analysis);
  if (run.ranks_expected > 1 && run.ranks == 1) return "There is nothing to compare." + OfTheOneThereIs(analysis);
  if (!analysis.unrecorded.empty()) return analysis.unrecorded;
  analysis.suspicious |= !idle.empty() && MostWorth(analysis) == nullptr;
  if (run.ranks == 1) {
    if (const Finding* first = MostWorth(analysis)) return first->headline;
    if (!idle.empty()) return idle;
    return fmt::format("One rank{}: nothing to compare, and {}", communicates ? "" : " that does not communicate",
                       Nothing(analysis));
  }
  if (!communicates) {
    analysis.suspicious = true;
    if (analysis.trust.dropped > 0)
      return fmt::format(
          "{} {} lost, and no communication is among those that are left: nothing is concluded from them.",
          Plural(analysis.trust.dropped, "record"), analysis.trust.dropped == 1 ? "was" : "were");
    if (OneSided(context))
      return fmt::format(
          "{} communicate by one-sided MPI alone: these calls take {} of a rank's time on average, and "
          "for whom they wait is not recorded.",
          Plural(run.ranks, "rank"), Percent(analysis.summary.mpi_rma_ns, analysis.summary.terms.Sum()));
    return fmt::format("{} ranks, but no communication was recorded: that is suspicious.{}", run.ranks,
                       idle.empty() ? "" : " " + idle);
  }
  if (const Finding* first = MostWorth(analysis)) return first->headline;
  if (!idle.empty()) return idle;
  std::string nothing = Nothing(analysis);
  if (!run.ranks_missing.empty()) return "In the others " + nothing;
  nothing[0] = 'N';
  return nothing;
}

// Input that is in no figure: mentioned before all others.
std::string LeftOut(const Analysis& analysis) {
  constexpr std::size_t kMostNamed = 4;
  std::string others;
  std::size_t runs = 0;
  for (const LossRow& loss : analysis.losses)
    if (loss.name == Info(Loss::kRunMixed).name && ++runs <= kMostNamed)
      others += (others.empty() ? "" : "; ") + loss.detail;
  if (runs == 0) return "";
  if (runs > kMostNamed) others += "; and of " + Plural(static_cast<std::int64_t>(runs - kMostNamed), "more run");
  return fmt::format("Files of other runs were left out ({}). ", others);
}

// Mentioned before everything that was found in the ranks that are there.
std::string NotAll(const RunFacts& run) {
  if (run.ranks == 0 || run.ranks_missing.empty()) return "";
  return fmt::format("{}, and waiting for {} is not seen. ",
                     RanksRecorded(run.ranks, run.ranks_expected, run.ranks_missing),
                     run.ranks_missing.size() == 1 ? "it" : "them");
}

// Why a job failed, most likely: mentioned before what it could gain.
std::string Disagreement(const Analysis& analysis) {
  // The loss is also that of rows that an earlier one repeats: those contradict nothing.
  if (analysis.run.endings.empty() || analysis.trust.mismatched_collectives == 0) return "";
  for (const LossRow& loss : analysis.losses)
    if (loss.name == Info(Loss::kCollectiveMismatch).name)
      return fmt::format("The job failed, and {} in kind or size between ranks{}{}. ",
                         loss.count == 1 ? std::string("a collective differs")
                                         : fmt::format("{} collectives differ", Count(loss.count)),
                         loss.detail.empty() ? "" : "; ", loss.detail);
  return "";
}

// " (87 % of the recording)"; "" if its length is not known.
std::string ShareOfSteps(const Context& context, const RunFacts& run) {
  std::int64_t in_steps_ns = 0, recorded_ns = 0;
  for (const std::int64_t ns : context.tables().steps.step_ns) in_steps_ns += std::max<std::int64_t>(0, ns);
  for (const CaptureWindow& window : run.window.windows) recorded_ns += window.span_ns;
  return recorded_ns > 0
             ? fmt::format(" ({} of the recording)", Percent(std::min(in_steps_ns, recorded_ns), recorded_ns))
             : "";
}

// All figures are of the steps that are left.
bool MostlyWarmup(const Context& context) {
  const auto& steps = context.tables().steps;
  std::int64_t left_out_ns = 0, all_ns = 0;
  for (std::size_t row = 0; row < steps.rows(); ++row) {
    all_ns += steps.step_ns[row];
    if (steps.warmup[row] != 0) left_out_ns += steps.step_ns[row];
  }
  for (const std::size_t row : context.slow_start()) left_out_ns += steps.warmup[row] == 0 ? steps.step_ns[row] : 0;
  return 2 * left_out_ns > all_ns;
}

void Remark(const Context& context, Analysis& analysis) {
  const RunFacts& run = analysis.run;
  const auto add = [&](std::string text) { analysis.remarks.push_back(std::move(text)); };
  if (const std::string_view differ = context.timeline().Meta("settings_differ"); !differ.empty())
    add(
        fmt::format("The ranks were recorded with different settings: {}. Variables LOCKSTEP_... of a shell do not "
                    "reach other hosts: give options on the command line.",
                    differ));
  if (const std::string_view why = context.timeline().Meta("clock_by_collectives"); !why.empty())
    add(fmt::format("Clocks were not measured against each other and are bounded by collectives alone ({}).", why));
  constexpr std::int64_t kWorthSaying = 100'000;
  if (const std::int64_t gpu = context.timeline().MetaNumber("gpu_clock_error_ns", 0); gpu >= kWorthSaying)
    add(fmt::format(
        "GPU times may be off the CPU's by up to {}, as far as launches and synchronisations show; the clock "
        "error includes it.",
        Duration(gpu)));
  if (!run.ranks_ended_early.empty())
    add(fmt::format("{} {} ended before the others; the analysis covers what was recorded.",
                    run.ranks_ended_early.size() == 1 ? "Rank" : "Ranks", ShortRankList(run.ranks_ended_early)));
  std::string endings;
  constexpr std::size_t kMaxEndings = 4;
  for (std::size_t i = 0; i < std::min(run.endings.size(), kMaxEndings); ++i)
    endings += (i == 0 ? "" : "; ") + run.endings[i];
  if (run.endings.size() > kMaxEndings) endings += fmt::format("; and {} more", run.endings.size() - kMaxEndings);
  if (!endings.empty()) {
    endings[0] = 'R';
    add(endings + ".");
  }
  if (analysis.suspicious && run.ranks > 1 && !Communicates(context) && analysis.trust.dropped == 0 &&
      !OneSided(context) && SourceOf(context.timeline()).imported.empty() &&
      std::none_of(analysis.losses.begin(), analysis.losses.end(), SaysWhy))
    add("If the ranks do communicate, Lockstep did not see it: lockstep doctor shows which sources were in place.");
  if (const Finding* warmup = FindingOf(analysis, FindingId::kWarmupCaptured);
      warmup != nullptr && MostlyWarmup(context))
    add(warmup->headline);
  const Finding* wait_only = FindingOf(analysis, FindingId::kProgressWaitOnly);
  if (analysis.wait_only && (wait_only == nullptr || wait_only->headline != analysis.verdict))
    add(analysis.mostly_posted
            ? "Communication was posted early but moved only in Wait: no overlap is claimed."
            : "What was posted early moved only in Wait, the rest is blocking: no overlap is claimed.");
  // Without it a reader takes the lengths of these steps for those of an iteration.
  if (!analysis.suspicious && context.timeline().Meta("step_source") == "signature")
    add(fmt::format("No steps are marked: what repeats with the collectives counts as a step{}. If it is none, {}.",
                    ShareOfSteps(context, run), ToMarkSteps(SourceOf(context.timeline()))));
  if (run.ranks > 1 && !analysis.suspicious) {
    if (run.steps + run.incomplete_steps == 0)
      add(fmt::format("No steps are marked: figures are of the whole recording. To have steps, {}.",
                      ToMarkSteps(SourceOf(context.timeline()))));
    else if (context.usable_steps().size() < 5 && context.units_are_steps())
      add(fmt::format("Only {} to compare: too few to name a rank.",
                      Plural(static_cast<std::int64_t>(context.usable_steps().size()), "step")));
    else if (context.usable_steps().empty())
      add("No step is complete on every rank: figures are of the whole recording.");
  }
  if (analysis.trust.clock_violations > 0)
    add(fmt::format("Clock alignment contradicts {} of {}: waits and transfers are not to be trusted.",
                    Count(analysis.trust.clock_violations), Plural(analysis.trust.collectives, "collective")));
}

}  // namespace

void Conclude(const Context& context, Analysis& analysis) {
  ChooseFindings(context, analysis);
  analysis.verdict = LeftOut(analysis) + NotAll(analysis.run) + Disagreement(analysis) + Sentence(context, analysis);
  Remark(context, analysis);
}

}  // namespace lockstep::analysis
