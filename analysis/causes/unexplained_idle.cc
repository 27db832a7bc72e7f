// Reports how long the GPU is idle for reasons that the recording does not contain, and what to record.

#include <algorithm>
#include <array>

#include "analysis/causes/cause.h"
#include "analysis/causes/gap_evidence.h"
#include "analysis/causes/recording_advice.h"
#include "analysis/passes.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

// What the trace lacks.
enum Missing : std::size_t { kHost, kLaunches, kStarts, kMissing };
Missing MissingFor(gpu::PartKind kind) {
  return kind == gpu::PartKind::kNotStarted ? kStarts : kind == gpu::PartKind::kLaunchUnknown ? kLaunches : kHost;
}

struct Found {
  RankCost cost;
  std::array<std::int64_t, kMissing> ns{};
  GapEvidence rows;

  void Add(Found&& next) {
    cost.Add(std::move(next.cost));
    for (std::size_t i = 0; i < kMissing; ++i) ns[i] += next.ns[i];
    rows.Add(std::move(next.rows));
  }
};

class UnexplainedIdle : public CauseOf<Found> {
 public:
  std::optional<Found> EvidenceOf(const RankEvents& events) const override {
    if (!events.gpu()) return std::nullopt;
    Found all{RankCost(events), {}, {}};
    all.rows.Look(events, IdleKind::kUnexplained, all.cost,
                  [&](const gpu::GapPart& part, std::int64_t ns) { all.ns[MissingFor(part.kind)] += ns; });
    return all;
  }

  void Report(const Context& context, Analysis& analysis) override {
    const std::int64_t whole = analysis.summary.terms.Sum();
    const GapSums in_gaps = SumGaps(found());
    const std::int64_t total = in_gaps.ns, gaps = in_gaps.gaps;
    std::array<std::int64_t, kMissing> sums{};
    for (const Found* one : found())
      for (std::size_t i = 0; i < kMissing; ++i) sums[i] += one->ns[i];
    const Cost cost = CostOf(in_gaps.costs, whole, context.options().seed);
    if (cost.ns <= 0 || total <= 0 || cost.share < rules::kNameShare) return;
    const auto most = static_cast<std::size_t>(std::max_element(sums.begin(), sums.end()) - sums.begin());
    Finding finding;
    finding.id = FindingId::kIdleUnexplained;
    constexpr std::array<Word, kMissing> kWhy{Word::kUnexplainedHost, Word::kUnexplainedLaunches,
                                              Word::kUnexplainedStarts};
    constexpr std::array<Word, kMissing> kShares{Word::kUnexplainedHostShare, Word::kUnexplainedLaunchesShare,
                                                 Word::kUnexplainedStartsShare};
    constexpr std::array<Clause (*)(const Context&), kMissing> kActions{ToNameHostWork, ToSeeLaunches, ToSeeStarts};
    finding.said.headline = {Say(Word::kUnexplained, {{"idle", PartOf(cost, whole)}}), Say(kWhy[most])};
    finding.said.brief = {Say(Word::kUnexplainedBrief)};
    finding.said.evidence = {Say(Word::kUnexplainedGaps, {{"gaps", Num{gaps}}})};
    for (std::size_t i = 0; i < kMissing; ++i) {
      if (sums[i] > 0)
        finding.said.evidence.push_back(
            Say(kShares[i], {{"share", Share{static_cast<double>(sums[i]) / static_cast<double>(total)}}}));
      if (!LittleOf(sums[i], total)) finding.said.action.push_back(kActions[i](context));
    }
    AddTo(finding.said.evidence, GapEvidence::AfterWaits(in_gaps.rows));
    finding.upper_bound = true;
    SetPrice(cost, finding);
    finding.explain = GapEvidence::Rows(in_gaps.rows);
    analysis.findings.push_back(std::move(finding));
  }
};

}  // namespace

std::unique_ptr<Cause> MakeUnexplainedIdle() { return std::make_unique<UnexplainedIdle>(); }

}  // namespace lockstep::analysis
