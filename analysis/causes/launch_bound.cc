// The GPU is idle because the host cannot launch kernels as fast as the GPU runs them.

#include <algorithm>

#include "analysis/causes/cause.h"
#include "analysis/causes/gap_evidence.h"
#include "analysis/core/source.h"
#include "analysis/passes.h"
#include "analysis/rules/causes.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

constexpr std::uint8_t kOptimizer = schema::Category::kOptimizer;

struct Launches {
  RankCost cost;
  GapEvidence rows;
  std::int64_t idle_ns = 0;  // All idle time.
  std::int64_t kernels = 0, short_kernels = 0, kernel_ns = 0, launch_ns = 0, launches = 0;
  std::int64_t optimizer_kernels = 0, optimizer_gap_ns = 0;

  void Add(Launches&& next) {
    cost.Add(std::move(next.cost));
    rows.Add(std::move(next.rows));
    AddCounts(next);
  }
  void AddCounts(const Launches& more) {
    idle_ns += more.idle_ns, kernels += more.kernels, short_kernels += more.short_kernels;
    kernel_ns += more.kernel_ns, launch_ns += more.launch_ns, launches += more.launches;
    optimizer_kernels += more.optimizer_kernels, optimizer_gap_ns += more.optimizer_gap_ns;
  }
};

class LaunchBound : public CauseOf<Launches> {
 public:
  std::optional<Launches> EvidenceOf(const RankEvents& events) const override {
    if (!events.gpu()) return std::nullopt;
    Launches all;
    all.cost = RankCost(events);
    const auto& ops = events.activity().timeline.ops;
    all.rows.Look(events, [&](const gpu::Gap& gap, std::size_t stretch, const gpu::GapPart& part, std::int64_t ns) {
      all.idle_ns += ns;
      if (RankEvents::KindOf(gap, part) != IdleKind::kLaunch) return false;
      all.cost.ns[stretch] += ns;
      const std::uint32_t launch = gap.after != schema::kNone ? ops[gap.after].api : schema::kNone;
      if (launch != schema::kNone && PhaseOfCall(events, launch) == kOptimizer) all.optimizer_gap_ns += ns;
      return true;
    });
    const auto& api = events.view().tables.api;
    std::vector<bool> seen(api.rows(), false);
    for (const gpu::GpuOp& op : ops) {
      if (!op.busy || op.copy) continue;
      if (events.StretchAt(op.begin_ns) == kNowhere) {
        if (op.api != schema::kNone && events.ExaminedBefore(op.begin_ns)) seen[op.api] = true;
        continue;
      }
      ++all.kernels;
      all.kernel_ns += op.end_ns - op.begin_ns;
      all.short_kernels += op.end_ns - op.begin_ns < rules::kShortKernelNs;
      if (op.api == schema::kNone || seen[op.api]) continue;
      seen[op.api] = true;
      ++all.launches;
      all.launch_ns += api.duration_ns[op.api];
      all.optimizer_kernels += PhaseOfCall(events, op.api) == kOptimizer;
    }
    return all;
  }

  void Report(const Context& context, Analysis& analysis) override {
    const std::int64_t whole = analysis.summary.terms.Sum();
    std::vector<RankCost> costs;
    Launches all;
    std::int64_t stretches = 0;
    std::int64_t gaps = 0;
    std::vector<const GapEvidence*> rows;
    for (const Launches* one : found()) {
      costs.push_back(one->cost);
      stretches += static_cast<std::int64_t>(one->cost.step.size());
      rows.push_back(&one->rows);
      gaps += one->rows.gaps();
      all.AddCounts(*one);
    }
    const Cost cost = CostOf(costs, whole, context.options().seed);
    if (cost.ns <= 0 || all.kernels == 0) return;
    std::int64_t total = 0;
    for (const RankCost& one : costs) total += one.Total();
    const Source source = SourceOf(context.timeline());
    Finding finding;
    finding.id = FindingId::kLaunchBound;
    finding.said.headline = {Say(Word::kLaunchBound, {{"idle", PartOf(cost, whole)}})};
    finding.said.brief = {Say(Word::kLaunchBoundBrief)};
    const auto share = [](std::int64_t part, std::int64_t of) {
      return of > 0 ? Value(Share{static_cast<double>(part) / static_cast<double>(of)}) : Value("-");
    };
    const auto number = [&](std::int64_t n) {
      return cost.per_step
                 ? Value(MeanNum{static_cast<double>(n) / static_cast<double>(std::max<std::int64_t>(1, stretches))})
                 : Value(Num{n});
    };
    finding.said.evidence = {Say(Word::kLaunchGaps, {{"share", share(total, all.idle_ns)},
                                                     {"gaps", number(gaps)},
                                                     {"per_step", cost.per_step},
                                                     {"each", Ns{total / std::max<std::int64_t>(1, gaps)}},
                                                     {"kernels", number(all.kernels)},
                                                     {"each_kernel", Ns{all.kernel_ns / all.kernels}},
                                                     {"short_share", share(all.short_kernels, all.kernels)},
                                                     {"short", Ns{rules::kShortKernelNs}}})};
    if (all.launches > 0)
      finding.said.evidence.push_back(Say(Word::kLaunchCalls, {{"each_call", Ns{all.launch_ns / all.launches}}}));
    const bool optimizer = MuchOf(all.optimizer_gap_ns, total);
    if (optimizer)
      finding.said.evidence.push_back(
          Say(Word::kLaunchOptimizer, {{"optimizer_share", share(all.optimizer_gap_ns, total)},
                                       {"kernels_share", share(all.optimizer_kernels, all.launches)}}));
    finding.said.action = (optimizer ? Advise(source, Word::kLaunchOptimizerAction, Word::kLaunchOptimizerTorchAction)
                                     : Advise(source, Word::kLaunchBoundAction, Word::kLaunchBoundTorchAction))
                              .all;
    finding.upper_bound = true;
    SetPrice(cost, finding);
    finding.explain = GapEvidence::Rows(rows);
    analysis.findings.push_back(std::move(finding));
  }

 private:
  static std::uint8_t PhaseOfCall(const RankEvents& events, std::uint32_t call) {
    const auto& api = events.view().tables.api;
    return events.PhaseOf(events.nest().At(api.thread[call], api.begin_ns[call]));
  }
};

}  // namespace

std::unique_ptr<Cause> MakeLaunchBound() { return std::make_unique<LaunchBound>(); }

}  // namespace lockstep::analysis
