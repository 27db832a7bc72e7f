// The GPU is idle because of something elsewhere: its host communicates on the CPU, or its stream waits for another
// GPU.

#include <algorithm>
#include <map>

#include "analysis/causes/cause.h"
#include "analysis/causes/gap_evidence.h"
#include "analysis/core/source.h"
#include "analysis/passes.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

struct FoundWaits {
  RankCost cost;
  std::map<std::string, std::int64_t> by_name;
  GapEvidence rows;

  void Add(FoundWaits&& next) {
    cost.Add(std::move(next.cost));
    AddSums(by_name, next.by_name);
    rows.Add(std::move(next.rows));
  }
};

class IdleWaits : public CauseOf<FoundWaits> {
 public:
  explicit IdleWaits(IdleKind kind) : kind_(kind) {}

  std::optional<FoundWaits> EvidenceOf(const RankEvents& events) const override {
    if (!events.gpu()) return std::nullopt;
    FoundWaits all{RankCost(events), {}, {}};
    all.rows.Look(events, kind_, all.cost,
                  [&](const gpu::GapPart& part, std::int64_t ns) { all.by_name[events.NameOf(part)] += ns; });
    return all;
  }

  void Report(const Context& context, Analysis& analysis) override {
    const std::int64_t whole = analysis.summary.terms.Sum();
    const GapSums in_gaps = SumGaps(found());
    const std::int64_t total = in_gaps.ns, gaps = in_gaps.gaps;
    std::map<std::string, std::int64_t> by_name;
    for (const FoundWaits* one : found())
      for (const auto& [name, ns] : one->by_name) by_name[name] += ns;
    const Cost cost = CostOf(in_gaps.costs, whole, context.options().seed);
    if (cost.ns <= 0 || total <= 0 || cost.share < rules::kNameShare) return;
    Finding finding;
    const auto most = std::max_element(by_name.begin(), by_name.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    finding.said.evidence = {
        Say(Word::kIdleWaitGaps, {{"gaps", Num{gaps}},
                                  {"each", Ns{total / std::max<std::int64_t>(1, gaps)}},
                                  {"share", Share{static_cast<double>(most->second) / static_cast<double>(total)}},
                                  {"name", most->first}})};
    AddTo(finding.said.evidence, GapEvidence::AfterWaits(in_gaps.rows));
    const Part idle = PartOf(cost, whole);
    if (kind_ == IdleKind::kCommunication) {
      finding.id = FindingId::kIdleCommunication;
      finding.said.headline = {Say(Word::kIdleCommunication, {{"idle", idle}})};
      finding.said.brief = {Say(Word::kIdleCommunicationBrief)};
      finding.said.action = {Say(SourceOf(context.timeline()).torch ? Word::kIdleCommunicationTorchAction
                                                                    : Word::kIdleCommunicationAction)};
    } else {
      finding.id = FindingId::kIdleOtherDevice;
      finding.said.headline = {Say(Word::kIdleOtherDevice, {{"idle", idle}})};
      finding.said.brief = {Say(Word::kIdleOtherDeviceBrief)};
      finding.said.action = {Say(Word::kIdleOtherDeviceAction)};
    }
    finding.upper_bound = true;
    SetPrice(cost, finding);
    finding.explain = GapEvidence::Rows(in_gaps.rows);
    analysis.findings.push_back(std::move(finding));
  }

 private:
  IdleKind kind_;
};

}  // namespace

std::unique_ptr<Cause> MakeIdleCommunication() { return std::make_unique<IdleWaits>(IdleKind::kCommunication); }
std::unique_ptr<Cause> MakeIdleOtherDevice() { return std::make_unique<IdleWaits>(IdleKind::kOtherDevice); }

}  // namespace lockstep::analysis
