// Idle time of which no finding tells: a step in which nothing runs is never a healthy one.

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "analysis/choose_findings.h"
#include "analysis/core/gpu_clocks.h"
#include "analysis/core/idle_kinds.h"
#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "analysis/words/render.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

// Of ranks without a GPU, from the terms and their parts (docs/definitions.md): of the summary or of a rank.
template <typename Row>
std::array<std::int64_t, kIdleKinds> IdleParts(const Row& row, bool messages) {
  std::array<std::int64_t, kIdleKinds> parts{};
  std::int64_t left = row.terms.idle_ns;
  const auto take = [&](IdleKind kind, std::int64_t ns) {
    ns = std::clamp<std::int64_t>(ns, 0, left);
    left -= ns;
    parts[static_cast<std::size_t>(kind)] = ns;
  };
  take(IdleKind::kInput, row.input_ns);
  take(IdleKind::kFiles, row.mpi_io_ns);
  take(IdleKind::kOneSided, row.mpi_rma_ns);
  take(IdleKind::kMpiSetup, row.mpi_setup_ns);
  take(IdleKind::kOtherMpi, row.mpi_other_ns - row.mpi_io_ns - row.mpi_rma_ns - row.mpi_setup_ns);
  take(messages ? IdleKind::kMessages : IdleKind::kUnexplained, left);
  return parts;
}

void LargestFirst(std::vector<IdleCause>& causes) {
  std::stable_sort(causes.begin(), causes.end(), [](const IdleCause& a, const IdleCause& b) { return a.ns > b.ns; });
}

void FillFromTerms(bool messages, Analysis& analysis) {
  const auto ns = IdleParts(analysis.summary, messages);
  for (std::size_t kind = 0; kind < kIdleKinds; ++kind)
    if (ns[kind] > 0)
      analysis.idle_causes.push_back({.cause = std::string(kIdleKindRows[kind].cause),
                                      .ns = ns[kind],
                                      .finding = std::string(KindOf(kIdleKindRows[kind].finding).name)});
  for (const RankRow& row : analysis.ranks) {
    const auto of_rank = IdleParts(row, messages);
    for (IdleCause& cause : analysis.idle_causes)
      for (std::size_t kind = 0; kind < kIdleKinds; ++kind)
        if (cause.cause == kIdleKindRows[kind].cause)
          cause.of_ranks.emplace_back(row.rank, static_cast<double>(of_rank[kind]));
  }
  LargestFirst(analysis.idle_causes);
}

// What a rank that is late is idle for beyond the rank in the middle makes it late: that is in its finding's price.
// What all have of it stays.
void LeaveToStragglers(Analysis& analysis) {
  std::vector<IdleCause> left;
  for (IdleCause& cause : analysis.idle_causes) {
    std::vector<double> of_ranks;
    for (const auto& [rank, value] : cause.of_ranks) of_ranks.push_back(value);
    if (cause.told || of_ranks.empty()) continue;
    const double all = std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0),
                 middle = LowerMedian(std::move(of_ranks));
    double beyond = 0;
    for (const auto& [rank, value] : cause.of_ranks)
      if (std::any_of(analysis.stragglers.begin(), analysis.stragglers.end(),
                      [rank = rank](const Straggler& straggler) { return straggler.rank == rank; }))
        beyond += std::max(0.0, value - middle);
    const std::int64_t theirs = all > 0 ? std::llround(static_cast<double>(cause.ns) * beyond / all) : 0;
    if (theirs <= 0) continue;
    cause.ns -= theirs;
    left.push_back({.cause = cause.cause,
                    .ns = theirs,
                    .finding = std::string(KindOf(FindingId::kStragglerArrival).name),
                    .told = true});
  }
  std::erase_if(analysis.idle_causes, [](const IdleCause& cause) { return cause.ns == 0; });
  analysis.idle_causes.insert(analysis.idle_causes.end(), left.begin(), left.end());
  LargestFirst(analysis.idle_causes);
}

// MPI begins and ends once in a run: that is no time which a change of the program gains, and it has no price.
void RemarkOnMpiSetup(const Context& context, Analysis& analysis) {
  const auto at = std::find_if(analysis.idle_causes.begin(), analysis.idle_causes.end(),
                               [](const IdleCause& each) { return each.cause == RowOf(IdleKind::kMpiSetup).cause; });
  if (at == analysis.idle_causes.end()) return;
  at->told = true;
  const std::int64_t whole = analysis.summary.terms.Sum();
  if (static_cast<double>(at->ns) < rules::kNameShare * static_cast<double>(whole)) return;
  const std::int64_t waited_ns = context.timeline().MetaNumber("fact.init_wait_ns", 0);
  const bool waited = static_cast<double>(waited_ns) >= rules::kNameShare * static_cast<double>(whole);
  analysis.remarks.push_back(
      Told(Word::kIdleMpiSetup, {{"idle", Ns{at->ns}},
                                 {"share", Share{static_cast<double>(at->ns) / static_cast<double>(whole)}},
                                 {"waited", If(waited, Ns{waited_ns})}}));
}

// What was left to another finding is told by that one.
void LeaveToTellers(Analysis& analysis) {
  for (const Finding& finding : analysis.findings)
    for (const FindingId id : finding.tells_also)
      for (IdleCause& cause : analysis.idle_causes)
        if (cause.finding == KindOf(id).name) cause.finding = KindOf(finding.id).name;
}

std::string_view WordsOf(std::string_view cause) {
  for (const IdleKindRow& row : kIdleKindRows)
    if (row.cause == cause) return row.words;
  return cause;
}

Word ActionForIdle(const IdleCause& largest, bool gpu) {
  if (gpu) return Word::kIdleOtherGpuAction;
  if (largest.cause == RowOf(IdleKind::kFiles).cause) return Word::kIdleOtherFilesAction;
  if (largest.cause == RowOf(IdleKind::kOneSided).cause) return Word::kIdleOtherOneSidedAction;
  return Word::kIdleOtherAction;
}

}  // namespace

void TellOtherIdle(const Context& context, const std::set<FindingId>& told, Analysis& analysis) {
  const Summary& s = analysis.summary;
  const std::int64_t whole = s.terms.Sum();
  if (whole <= 0 || s.terms.device_unknown || NotableGpuClocks(context.timeline()).contradicts_ns > 0) return;
  const bool gpu = analysis.run.gpu_ranks > 0;
  if (!gpu && analysis.idle_causes.empty()) FillFromTerms(context.tables().p2p_pairs.rows() > 0, analysis);
  LeaveToTellers(analysis);
  RemarkOnMpiSetup(context, analysis);
  for (IdleCause& cause : analysis.idle_causes)
    cause.told |= std::any_of(told.begin(), told.end(), [&](FindingId id) { return KindOf(id).name == cause.finding; });
  if (told.contains(FindingId::kStragglerArrival)) LeaveToStragglers(analysis);
  std::int64_t rest = 0;
  Clauses parts;
  const IdleCause* largest = nullptr;
  for (const IdleCause& cause : analysis.idle_causes) {
    if (cause.told) continue;
    rest += cause.ns;
    if (largest == nullptr) largest = &cause;
    parts.all.push_back(Say(parts.all.empty() ? Word::kIdleOtherPart : Word::kIdleOtherNextPart,
                            {{"cause", std::string(WordsOf(cause.cause))}, {"idle", Ns{cause.ns}}}));
  }
  // A GPU of which no kernel was recorded, copies alone say: all of its idle time is unexplained.
  if (gpu && analysis.idle_causes.empty()) {
    rest = s.terms.idle_ns;
    parts = {{Say(Word::kIdleOtherNoKernel)}};
  }
  // A mean over steps, of which one may be an outlier: no more is told than is idle in the step that is shown.
  rest = std::min(rest, s.terms.idle_ns);
  if (static_cast<double>(rest) < rules::kNameShare * static_cast<double>(whole)) return;
  Finding finding;
  finding.id = FindingId::kIdleOther;
  finding.said.headline = {
      Say(gpu ? Word::kIdleOtherGpu : Word::kIdleOther,
          {{"one_rank", context.ranks().size() == 1}, {"idle", PartOf(s, rest)}, {"causes", parts}})};
  finding.said.brief = {Say(gpu ? Word::kIdleOtherGpuBrief : Word::kIdleOtherBrief)};
  finding.said.evidence = {
      Say(gpu && s.per_step ? Word::kIdleOtherMeanEvidence : Word::kIdleOtherEvidence, {{"causes", parts}})};
  finding.said.action = {Say(ActionForIdle(largest != nullptr ? *largest : IdleCause{}, gpu))};
  finding.upper_bound = true;
  SetPrice(s, rest, finding);
  finding.explain.columns = {"ns"};
  for (const IdleCause& cause : analysis.idle_causes) {
    finding.explain.rows.push_back({cause.ns});
    finding.explain.names.push_back(cause.cause + (cause.told ? " (" + cause.finding + ")" : ""));
  }
  analysis.findings.push_back(std::move(finding));
}

}  // namespace lockstep::analysis
