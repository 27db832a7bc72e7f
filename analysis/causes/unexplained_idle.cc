// Reports how long the GPU is idle for reasons that the recording does not contain, and what to record.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "analysis/causes/cause.h"
#include "analysis/causes/gap_evidence.h"
#include "analysis/causes/recording_advice.h"
#include "analysis/core/format.h"
#include "analysis/passes.h"

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
    if (cost.ns <= 0 || total <= 0 || cost.share < kNameShare) return;
    const auto most = static_cast<std::size_t>(std::max_element(sums.begin(), sums.end()) - sums.begin());
    Finding finding;
    finding.id = FindingId::kIdleUnexplained;
    finding.headline =
        fmt::format("The GPU is idle for {}, and the recording does not tell why: {}.", OfTheStep(cost, whole),
                    most == kHost       ? "nothing of the host is recorded there but its calls"
                    : most == kLaunches ? "the calls that launched what came next are not in it"
                                        : "what came next had been launched and did not start");
    finding.brief = "GPU idle for a reason that was not recorded";
    static constexpr std::array<std::string_view, kMissing> kTexts = {
        "where nothing of the host is recorded", "before work whose launching call is not in the trace",
        "in which launched work did not start within 30 us"};
    finding.evidence = Plural(gaps, "gap");
    for (std::size_t i = 0; i < kMissing; ++i)
      if (sums[i] > 0) finding.evidence += fmt::format(", {} {}", Percent(sums[i], total), kTexts[i]);
    finding.evidence += GapEvidence::AfterWaits(in_gaps.rows);
    for (std::size_t i = 0; i < kMissing; ++i) {
      if (sums[i] * 10 < total) continue;
      finding.action += finding.action.empty() ? "" : "; ";
      finding.action += i == kHost       ? ToNameHostWork(context)
                        : i == kLaunches ? ToSeeLaunches(context)
                                         : ToSeeStarts(context);
    }
    finding.upper_bound = true;
    finding.confidence = 0.9;
    SetPrice(cost, finding);
    finding.explain = GapEvidence::Rows(in_gaps.rows);
    analysis.findings.push_back(std::move(finding));
  }
};

}  // namespace

std::unique_ptr<Cause> MakeUnexplainedIdle() { return std::make_unique<UnexplainedIdle>(); }

}  // namespace lockstep::analysis
