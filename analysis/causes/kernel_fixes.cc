// Finds kernels that determine the step's length and have a known remedy. Only time on the critical path counts: if the
// GPU waits for its host anyway, faster kernels gain nothing.

#include <algorithm>
#include <map>

#include "analysis/causes/cause.h"
#include "analysis/causes/kernel_patterns.h"
#include "analysis/core/source.h"
#include "analysis/passes.h"
#include "analysis/rules/causes.h"

namespace lockstep::analysis {
namespace {

struct NameSum {
  std::int64_t count = 0, ns = 0;
  NameSum& operator+=(const NameSum& more) {
    count += more.count, ns += more.ns;
    return *this;
  }
};
struct OfPattern {
  RankCost cost;
  std::map<std::string, NameSum> by_name;
  std::int64_t count = 0;
};
struct Kernels {
  std::vector<OfPattern> of;  // Per pattern.
  std::int64_t on_path_ns = 0;

  void Add(Kernels&& next) {
    for (std::size_t p = 0; p < of.size(); ++p) {
      of[p].cost.Add(std::move(next.of[p].cost));
      AddSums(of[p].by_name, next.of[p].by_name);
      of[p].count += next.of[p].count;
    }
    on_path_ns += next.on_path_ns;
  }
};

class KernelFixes : public CauseOf<Kernels> {
 public:
  std::optional<Kernels> EvidenceOf(const RankEvents& events) const override {
    if (!events.gpu()) return std::nullopt;
    const auto& ops = events.activity().timeline.ops;
    const std::vector<std::uint8_t> pattern = MatchPatterns(events);
    Kernels kernels;
    kernels.of.resize(KernelPatterns().size());
    for (OfPattern& one : kernels.of) one.cost = RankCost::OfPaths(events);
    for (std::size_t p = 0; p < events.paths().size(); ++p)
      for (const gpu::PathPiece& piece : events.paths()[p].path.pieces) {
        if ((piece.edge != gpu::PathEdge::kOp && piece.edge != gpu::PathEdge::kCut) || ops[piece.op].copy) continue;
        const std::int64_t ns = piece.end_ns - piece.begin_ns;
        kernels.on_path_ns += ns;
        if (pattern[piece.op] == kNoPattern) continue;
        OfPattern& one = kernels.of[pattern[piece.op]];
        one.cost.ns[p] += ns;
        ++one.count;
        NameSum& sum = one.by_name[gpu::OpName(events.view(), ops[piece.op])];
        ++sum.count;
        sum.ns += ns;
      }
    return kernels;
  }

  void Report(const Context& context, Analysis& analysis) override {
    for (std::size_t p = 0; p < KernelPatterns().size(); ++p) TellOne(context, analysis, p);
  }

 private:
  void TellOne(const Context& context, Analysis& analysis, std::size_t p) const {
    const KernelPattern& pattern = KernelPatterns()[p];
    const std::int64_t whole = analysis.summary.terms.Sum();
    std::vector<RankCost> costs;
    std::map<std::string, NameSum> by_name;
    std::int64_t count = 0, stretches = 0, total = 0;
    for (const Kernels* one : found()) {
      costs.push_back(one->of[p].cost);
      count += one->of[p].count;
      stretches += static_cast<std::int64_t>(one->of[p].cost.step.size());
      for (const auto& [name, sum] : one->of[p].by_name) {
        by_name[name].count += sum.count;
        by_name[name].ns += sum.ns;
        total += sum.ns;
      }
    }
    Cost cost = CostOf(costs, whole, context.options().seed);
    if (cost.ns <= 0 || stretches == 0 || cost.share < pattern.least_share) return;
    if (pattern.needs == KernelPattern::kInOptimizer && count < rules::kOptimizerKernelsPerStep * stretches) return;
    std::vector<std::pair<std::string, NameSum>> order(by_name.begin(), by_name.end());
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
    Finding finding;
    finding.id = pattern.id;
    finding.said.headline = {
        Say(Word::kKernelsTake,
            {{"cost", PartOf(cost, whole)}, {"per_step", cost.per_step}, {"work", Clauses{{Say(pattern.what)}}}})};
    finding.said.brief = {Say(pattern.brief)};
    const Value kernels =
        cost.per_step ? Value(MeanNum{static_cast<double>(count) / static_cast<double>(stretches)}) : Value(Num{count});
    finding.said.evidence = {Say(Word::kKernelsTakeEvidence, {{"kernels", kernels},
                                                              {"per_step", cost.per_step},
                                                              {"each", Ns{total / std::max<std::int64_t>(1, count)}},
                                                              {"name", ShortName(order[0].first, 40)},
                                                              {"share", Share{static_cast<double>(order[0].second.ns) /
                                                                              static_cast<double>(total)}}})};
    finding.said.action = Advise(SourceOf(context.timeline()), pattern.action, pattern.in_torch).all;
    finding.upper_bound = true;
    finding.explain = {{"count", "on_critical_path_ns"}, {}};
    for (const auto& [name, sum] : order) {
      if (finding.explain.rows.size() >= rules::kKernelNamesListed) break;
      finding.explain.rows.push_back({sum.count, sum.ns});
      finding.explain.names.push_back(name);
    }
    cost.ns = static_cast<std::int64_t>(static_cast<double>(cost.ns) * pattern.removable);
    cost.share *= pattern.removable;
    if (cost.interval_ns) {
      cost.interval_ns->first =
          static_cast<std::int64_t>(static_cast<double>(cost.interval_ns->first) * pattern.removable);
      cost.interval_ns->second =
          static_cast<std::int64_t>(static_cast<double>(cost.interval_ns->second) * pattern.removable);
    }
    SetPrice(cost, finding);
    analysis.findings.push_back(std::move(finding));
  }
};

}  // namespace

std::unique_ptr<Cause> MakeKernelFixes() { return std::make_unique<KernelFixes>(); }

}  // namespace lockstep::analysis
