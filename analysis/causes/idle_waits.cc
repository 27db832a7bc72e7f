// The GPU is idle because of something elsewhere: its host communicates on the CPU, or its stream waits for another
// GPU.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/causes/cause.h"
#include "analysis/causes/gap_evidence.h"
#include "analysis/core/format.h"
#include "analysis/core/source.h"
#include "analysis/passes.h"

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
    if (cost.ns <= 0 || total <= 0 || cost.share < kNameShare) return;
    Finding finding;
    finding.evidence = fmt::format("{}, {} of it each on average", Plural(gaps, "gap"),
                                   Duration(total / std::max<std::int64_t>(1, gaps)));
    const auto most = std::max_element(by_name.begin(), by_name.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (!most->first.empty())
      finding.evidence += fmt::format(": {} in \"{}\"", Percent(most->second, total), most->first);
    finding.evidence += GapEvidence::AfterWaits(in_gaps.rows);
    if (kind_ == IdleKind::kCommunication) {
      finding.id = FindingId::kIdleCommunication;
      finding.headline =
          fmt::format("The GPU is idle for {} while its host communicates on the CPU.", OfTheStep(cost, whole));
      finding.brief = "GPU idle while the host communicates";
      finding.action = SourceOf(context.timeline()).torch
                           ? "send what belongs to the steps over the nccl backend, or less often"
                           : "send it from the GPU (NCCL, CUDA-aware MPI), less often, or while the GPU still has work";
    } else {
      finding.id = FindingId::kIdleOtherDevice;
      finding.headline =
          fmt::format("The GPU is idle for {} while it waits for another GPU's work.", OfTheStep(cost, whole));
      finding.brief = "GPU waits for another GPU";
      finding.action = "let the GPUs overlap: divide the batch into parts that follow each other (a pipeline)";
    }
    finding.upper_bound = true;
    finding.confidence = 0.7;
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
