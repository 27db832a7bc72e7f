// The first sentence of the report and the lines directly below it.

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/choose_findings.h"
#include "analysis/core/format.h"
#include "analysis/core/gpu_clocks.h"
#include "analysis/core/source.h"
#include "analysis/passes.h"
#include "analysis/rules/run.h"
#include "analysis/run/ranks_recorded.h"
#include "analysis/words/render.h"
#include "core/loss.h"
#include "core/rules/common.h"

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

// The sentence for a healthy run, with what was checked.
Clause Nothing(const Analysis& analysis) {
  const Summary& s = analysis.summary;
  std::vector<Word> looked;
  if (analysis.run.ranks > 1) looked.insert(looked.end(), {Word::kCheckedLateRanks, Word::kCheckedExposed});
  looked.push_back(Word::kCheckedInput);
  if (analysis.run.gpu_ranks > 0)
    looked.insert(looked.end(),
                  {Word::kCheckedSyncs, Word::kCheckedLaunches, Word::kCheckedCopies, Word::kCheckedMemory});
  if (s.per_step) looked.push_back(Word::kCheckedBursts);
  Names checked;
  for (const Word what : looked) checked.values.push_back(Told(what));
  return Say(
      Word::kNothingFound,
      {{"least", Real{100 * rules::kNameShare}}, {"step", If(s.per_step, Ns{s.terms.Sum()})}, {"checked", checked}});
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
    if (loss.name == Info(Loss::kStepWithoutKernel).name)
      return Told(run.incomplete_steps == 1 ? Word::kVerdictNoKernelInStep : Word::kVerdictNoKernelInSteps,
                  {{"steps", Index{run.incomplete_steps}}});
  return "";
}

struct Sentence {
  std::string text;
  const Finding* quotes = nullptr;  // It is the headline of this one.
};

Sentence VerdictOf(const Context& context, Analysis& analysis) {
  const RunFacts& run = analysis.run;
  const Finding* first = MostWorth(analysis);
  const bool communicates = Communicates(context);
  const std::string idle = NothingInSteps(analysis);
  if (run.ranks == 0) {
    analysis.suspicious = true;
    return {Told(Word::kVerdictNoFile)};
  }
  if (analysis.trust.events == 0 && analysis.unrecorded.empty() && !communicates && analysis.summary.terms.Sum() == 0) {
    analysis.suspicious = true;
    return {Told(Word::kVerdictNoEvent, {{"ranks", Num{run.ranks}}})};
  }
  // A profiler that is stopped as its step begins writes this: the step's own range and nothing within it.
  if (const auto marks = static_cast<std::int64_t>(context.tables().step_ranks.rows());
      marks > 0 && analysis.trust.events <= marks && !communicates && !SourceOf(context.timeline()).imported.empty()) {
    analysis.suspicious = true;
    return {Told(Word::kVerdictNothingInSteps, {{"steps", Num{run.steps}}, {"ranks", Num{run.ranks}}})};
  }
  if (run.ranks_expected > 1 && run.ranks == 1)
    return {Told(run.ranks_left_out.empty() ? Word::kVerdictOnlyOneThere : Word::kVerdictOnlyOneRecorded,
                 {{"headline", first != nullptr ? first->headline : ""}})};
  if (!analysis.unrecorded.empty()) return {analysis.unrecorded};
  analysis.suspicious |= !idle.empty() && first == nullptr;
  if (run.ranks == 1) {
    if (first != nullptr) return {first->headline, first};
    if (!idle.empty()) return {idle};
    return {
        Told(Word::kVerdictOneRank, {{"communicates", communicates}, {"nothing_found", Clauses{{Nothing(analysis)}}}})};
  }
  if (!communicates) {
    analysis.suspicious = true;
    if (analysis.trust.dropped > 0)
      return {Told(Word::kVerdictRecordsLost, {{"dropped", Num{analysis.trust.dropped}}})};
    if (OneSided(context))
      return {Told(
          Word::kVerdictOneSided,
          {{"ranks", Num{run.ranks}}, {"share", Percent(analysis.summary.mpi_rma_ns, analysis.summary.terms.Sum())}})};
    return {Told(Word::kVerdictNoCommunication, {{"ranks", Index{run.ranks}}, {"no_kernel", idle}})};
  }
  if (first != nullptr) return {first->headline, first};
  if (!idle.empty()) return {idle};
  return {Told(run.ranks_missing.empty() ? Word::kVerdictNothingFound : Word::kVerdictNothingInOthers,
               {{"nothing_found", Clauses{{Nothing(analysis)}}}})};
}

// The first of them, "; " between.
std::string FirstOf(const std::vector<std::string>& texts, std::size_t most) {
  std::string named;
  for (std::size_t i = 0; i < std::min(texts.size(), most); ++i) named += (i == 0 ? "" : "; ") + texts[i];
  return named;
}
std::int64_t Beyond(const std::vector<std::string>& texts, std::size_t most) {
  return texts.size() > most ? static_cast<std::int64_t>(texts.size() - most) : 0;
}

// Input that is in no figure: mentioned before all others.
std::string LeftOut(const Analysis& analysis) {
  std::vector<std::string> runs;
  for (const LossRow& loss : analysis.losses)
    if (loss.name == Info(Loss::kRunMixed).name) runs.push_back(loss.detail);
  if (runs.empty()) return "";
  const std::int64_t more = Beyond(runs, rules::kRemarkPhrasesListed);
  return Told(Word::kFilesLeftOut,
              {{"runs", FirstOf(runs, rules::kRemarkPhrasesListed)}, {"more", If(more > 0, Num{more})}});
}

// Mentioned before everything that was found in the ranks that are there.
std::string NotAll(const RunFacts& run) {
  if (run.ranks == 0 || run.ranks_missing.empty()) return "";
  return Told(Word::kRanksNotSeen, {{"ranks_recorded", RanksRecorded(run.ranks, run.ranks_expected, run.ranks_missing)},
                                    {"missing", Ranks{run.ranks_missing}}});
}

// Why a job failed, most likely: mentioned before what it could gain.
std::string Disagreement(const Analysis& analysis) {
  // The loss is also that of rows that an earlier one repeats: those contradict nothing.
  if (analysis.run.endings.empty() || analysis.trust.mismatched_collectives == 0) return "";
  for (const LossRow& loss : analysis.losses)
    if (loss.name == Info(Loss::kCollectiveMismatch).name)
      return Told(loss.count == 1 ? Word::kCollectiveDiffers : Word::kCollectivesDiffer,
                  {{"collectives", Num{static_cast<std::int64_t>(loss.count)}}, {"detail", loss.detail}});
  return "";
}

// The last step of these ranks, if it is the same; not known otherwise.
Value LastStepOf(const Context& context, const std::vector<std::int32_t>& ranks) {
  std::optional<std::int64_t> same;
  for (const std::int32_t rank : ranks) {
    const std::size_t p = context.Position(rank);
    const auto last = std::find_if(context.steps().rbegin(), context.steps().rend(), [&](std::size_t row) {
      const std::size_t cell = context.Cell(row, p);
      return cell != kNowhere && context.tables().step_ranks.complete[cell] != 0;
    });
    if (last == context.steps().rend()) return {};
    const std::int64_t index = context.tables().steps.index[*last];
    if (same.value_or(index) != index) return {};
    same = index;
  }
  return same ? Value(Index{*same}) : Value();
}

// Ranks that ended before the others, and how the job went on: mentioned before what it could gain.
std::string EndedFirst(const Context& context, const RunFacts& run) {
  const std::vector<std::int32_t>& early = run.ranks_ended_early;
  if (early.empty()) return "";
  const auto& exit_code = context.tables().ranks.exit_code;
  const auto ended = [&](std::int32_t code) {
    return std::all_of(early.begin(), early.end(),
                       [&](std::int32_t rank) { return exit_code[context.RankRow(context.Position(rank))] == code; });
  };
  const bool left_with_zero = ended(0), left = left_with_zero || run.endings.empty();
  const std::int64_t more = Beyond(run.endings, rules::kRemarkPhrasesListed);
  return Told(left ? Word::kRanksLeft : Word::kRanksFailed,
              {{"ranks", Ranks{early}},
               {"rank_list", ShortRankList(early)},
               {"zero", left_with_zero},
               {"step", LastStepOf(context, early)},
               {"endings", FirstOf(run.endings, rules::kRemarkPhrasesListed)},
               {"more", If(more > 0, Index{more})}});
}

// Mentioned before everything that is made of GPU times.
std::string StreamOverlaps(const GpuClocks& clocks) {
  return clocks.overlap_ns > 0 ? Told(Word::kGpuStreamOverlaps, {{"overlap", Ns{clocks.overlap_ns}}}) : "";
}

// Mentioned before everything that compares times of the two.
std::string ClocksApart(const GpuClocks& clocks) {
  if (clocks.contradicts_ns > 0) return Told(Word::kGpuClockContradicts, {{"error", Ns{clocks.contradicts_ns}}});
  if (clocks.moved_ns > 0) return Told(Word::kGpuClockMoved, {{"moved", Ns{clocks.moved_ns}}});
  return "";
}

bool ComparesGpuAndHost(FindingId id) {
  switch (id) {
    case FindingId::kHostWork:
    case FindingId::kSyncHost:
    case FindingId::kLaunchBound:
    case FindingId::kInputBound:
    case FindingId::kIdleCommunication:
    case FindingId::kIdleOtherDevice:
    case FindingId::kIdleUnexplained:
      return true;
    default:
      return false;
  }
}

// Of the recording; not known if its length is not.
Value ShareOfSteps(const Context& context, const RunFacts& run) {
  std::int64_t in_steps_ns = 0, recorded_ns = 0;
  for (const std::int64_t ns : context.tables().steps.step_ns) in_steps_ns += std::max<std::int64_t>(0, ns);
  for (const CaptureWindow& window : run.window.windows) recorded_ns += window.span_ns;
  if (recorded_ns <= 0) return {};
  return Share{static_cast<double>(std::min(in_steps_ns, recorded_ns)) / static_cast<double>(recorded_ns)};
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
  return MostOf(left_out_ns, all_ns);
}

// `verdict`: the finding whose headline it is.
void Remark(const Context& context, const Finding* verdict, Analysis& analysis) {
  const RunFacts& run = analysis.run;
  const auto add = [&](Word word, std::initializer_list<Fact> facts = {}) {
    analysis.remarks.push_back(Told(word, facts));
  };
  const auto mark_steps = [&] { return Clauses{{ToMarkSteps(SourceOf(context.timeline()))}}; };
  if (const std::string_view differ = context.timeline().Meta("settings_differ"); !differ.empty())
    add(Word::kSettingsDiffer, {{"settings", std::string(differ)}});
  if (const std::string_view why = context.timeline().Meta("clock_by_collectives"); !why.empty())
    add(Word::kClockByCollectives, {{"why", std::string(why)}});
  if (const std::int64_t gpu = context.timeline().MetaNumber("gpu_clock_error_ns", 0); gpu >= rules::kGpuClockErrorNs)
    add(Word::kClockOfGpu, {{"error", Ns{gpu}}});
  const std::int64_t more = Beyond(run.endings, rules::kRemarkPhrasesListed);
  if (!run.endings.empty() && run.ranks_ended_early.empty())
    add(Word::kRanksEnded,
        {{"endings", FirstOf(run.endings, rules::kRemarkPhrasesListed)}, {"more", If(more > 0, Index{more})}});
  if (analysis.suspicious && run.ranks > 1 && !Communicates(context) && analysis.trust.dropped == 0 &&
      !OneSided(context) && SourceOf(context.timeline()).imported.empty() &&
      std::none_of(analysis.losses.begin(), analysis.losses.end(), SaysWhy))
    add(Word::kSourcesNotSeen);
  if (const Finding* warmup = FindingOf(analysis, FindingId::kWarmupCaptured);
      warmup != nullptr && MostlyWarmup(context))
    analysis.remarks.push_back(warmup->headline);
  const Finding* wait_only = FindingOf(analysis, FindingId::kProgressWaitOnly);
  if (analysis.wait_only && (wait_only == nullptr || wait_only != verdict))
    add(analysis.mostly_posted ? Word::kWaitOnly : Word::kWaitOnlyInPart);
  // Without it a reader takes the lengths of these steps for those of an iteration.
  if (!analysis.suspicious && context.timeline().Meta("step_source") == "signature")
    add(Word::kStepsBySignature, {{"share", ShareOfSteps(context, run)}, {"mark_steps", mark_steps()}});
  if (run.ranks > 1 && !analysis.suspicious) {
    if (run.steps + run.incomplete_steps == 0)
      add(Word::kStepsNotMarked, {{"mark_steps", mark_steps()}});
    else if (context.usable_steps().size() < rules::kFewest && context.units_are_steps())
      add(Word::kStepsTooFew, {{"steps", Num{static_cast<std::int64_t>(context.usable_steps().size())}}});
    else if (context.usable_steps().empty())
      add(Word::kStepsNoneComplete);
  }
  if (analysis.trust.clock_violations > 0)
    add(Word::kClockContradicts,
        {{"violations", Num{analysis.trust.clock_violations}}, {"collectives", Num{analysis.trust.collectives}}});
}

}  // namespace

void Conclude(const Context& context, Analysis& analysis) {
  const GpuClocks clocks = NotableGpuClocks(context.timeline());
  if (clocks.contradicts_ns > 0)
    std::erase_if(analysis.findings, [](const Finding& finding) { return ComparesGpuAndHost(finding.id); });
  ChooseFindings(context, analysis);
  std::string before;
  for (const std::string& one : {LeftOut(analysis), NotAll(analysis.run), StreamOverlaps(clocks), ClocksApart(clocks),
                                 Disagreement(analysis), EndedFirst(context, analysis.run)})
    if (!one.empty()) before += one + " ";
  const Sentence last = VerdictOf(context, analysis);
  analysis.verdict = before + last.text;
  Remark(context, before.empty() ? last.quotes : nullptr, analysis);
}

}  // namespace lockstep::analysis
