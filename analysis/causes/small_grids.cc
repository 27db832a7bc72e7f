// Reports kernels with fewer blocks than the GPU has multiprocessors: the other multiprocessors are idle while they
// run.

#include <algorithm>
#include <map>

#include "analysis/causes/cause.h"
#include "analysis/causes/kernel_patterns.h"
#include "analysis/passes.h"
#include "analysis/rules/causes.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

struct GridSum {
  std::int64_t count = 0, ns = 0, unused_ns = 0, blocks = 0;
  GridSum& operator+=(const GridSum& more) {
    count += more.count, ns += more.ns, unused_ns += more.unused_ns, blocks += more.blocks;
    return *this;
  }
};
struct Grids {
  RankCost cost;
  std::map<std::string, GridSum> by_name;
  std::int64_t multiprocessors = 0, known_ns = 0;

  void Add(Grids&& next) {
    cost.Add(std::move(next.cost));
    AddSums(by_name, next.by_name);
    if (next.multiprocessors > 0) multiprocessors = next.multiprocessors;
    known_ns += next.known_ns;
  }
};

class SmallGrids : public CauseOf<Grids> {
 public:
  std::optional<Grids> EvidenceOf(const RankEvents& events) const override {
    if (!events.gpu()) return std::nullopt;
    const schema::RankTables& t = events.view().tables;
    std::map<std::uint16_t, std::int64_t> multiprocessors;
    for (std::uint32_t row = 0; row < t.devices.rows(); ++row)
      if (t.devices.sm_count[row] > 0) multiprocessors[t.devices.device[row]] = t.devices.sm_count[row];
    if (multiprocessors.empty() || t.kernel_shapes.rows() == 0) return std::nullopt;
    const auto& timeline = events.activity().timeline;
    const std::vector<std::uint8_t> pattern = MatchPatterns(events);
    const std::vector<bool> alone = Alone(timeline.ops);
    Grids grids{RankCost::OfPaths(events), {}, 0, 0};
    for (std::size_t p = 0; p < events.paths().size(); ++p)
      for (const gpu::PathPiece& piece : events.paths()[p].path.pieces) {
        if (piece.edge != gpu::PathEdge::kOp) continue;
        const gpu::GpuOp& op = timeline.ops[piece.op];
        // Communication uses few blocks by design; kernels with a remedy of their own are reported by their finding.
        if (op.copy || op.cls != merge::KernelClass::kCompute || pattern[piece.op] != kNoPattern) continue;
        const auto sms = multiprocessors.find(timeline.DeviceOf(op));
        const std::uint32_t shape = t.kernels.shape[op.row];
        if (sms == multiprocessors.end() || shape >= t.kernel_shapes.rows()) continue;
        const std::int64_t ns = piece.end_ns - piece.begin_ns;
        grids.known_ns += ns;
        grids.multiprocessors = sms->second;
        const std::int64_t blocks =
            std::int64_t{t.kernel_shapes.grid_x[shape]} * t.kernel_shapes.grid_y[shape] * t.kernel_shapes.grid_z[shape];
        // Many libraries choose slightly fewer blocks than multiprocessors on purpose.
        if (blocks <= 0 || MostOf(blocks, sms->second) || !alone[piece.op] ||
            op.end_ns - op.begin_ns < rules::kSmallGridKernelNs)
          continue;
        const auto unused = static_cast<std::int64_t>(
            static_cast<double>(ns) * (1 - static_cast<double>(blocks) / static_cast<double>(sms->second)));
        grids.cost.ns[p] += unused;
        GridSum& sum = grids.by_name[gpu::OpName(events.view(), op)];
        ++sum.count;
        sum.ns += ns;
        sum.unused_ns += unused;
        sum.blocks += blocks;
      }
    return grids;
  }

  void Report(const Context& context, Analysis& analysis) override {
    const std::int64_t whole = analysis.summary.terms.Sum();
    std::vector<RankCost> costs;
    std::map<std::string, GridSum> by_name;
    std::int64_t stretches = 0, small_ns = 0, known_ns = 0, count = 0, multiprocessors = 0;
    for (const Grids* one : found()) {
      costs.push_back(one->cost);
      stretches += static_cast<std::int64_t>(one->cost.step.size());
      known_ns += one->known_ns;
      multiprocessors = std::max(multiprocessors, one->multiprocessors);
      for (const auto& [name, sum] : one->by_name) {
        by_name[name] += sum;
        small_ns += sum.ns, count += sum.count;
      }
    }
    const Cost cost = CostOf(costs, whole, context.options().seed);
    if (cost.share < rules::kNameShare || by_name.empty()) return;
    std::vector<std::pair<std::string, GridSum>> order(by_name.begin(), by_name.end());
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.second.unused_ns > b.second.unused_ns; });
    const auto& [name, most] = order.front();
    const std::int64_t blocks = most.blocks / std::max<std::int64_t>(1, most.count);
    Finding finding;
    finding.id = FindingId::kGpuSmallGrids;
    finding.said.headline = {
        Say(Word::kGridsSmall),
        Say(Word::kGridsSmallCost, {{"multiprocessors", Index{multiprocessors}}, {"cost", PartOf(cost, whole)}})};
    finding.said.brief = {Say(Word::kGridsSmallBrief)};
    const Value kernels =
        cost.per_step ? Value(MeanNum{static_cast<double>(count) / static_cast<double>(stretches)}) : Value(Num{count});
    finding.said.evidence = {
        Say(Word::kGridsSmallEvidence, {{"kernels", kernels},
                                        {"per_step", cost.per_step},
                                        {"multiprocessors", Index{multiprocessors}},
                                        {"share", Share{static_cast<double>(small_ns) / static_cast<double>(known_ns)}},
                                        {"name", ShortName(name, 40)},
                                        {"blocks", Num{blocks}},
                                        {"each", Ns{most.ns / std::max<std::int64_t>(1, most.count)}}})};
    finding.said.action = {Say(Word::kGridsSmallAction)};
    finding.upper_bound = true;
    SetPrice(cost, finding);
    finding.explain = {{"count", "blocks", "on_critical_path_ns", "unused_ns"}, {}};
    for (const auto& [each, sum] : order) {
      if (finding.explain.rows.size() >= rules::kKernelNamesListed) break;
      finding.explain.rows.push_back(
          {sum.count, sum.blocks / std::max<std::int64_t>(1, sum.count), sum.ns, sum.unused_ns});
      finding.explain.names.push_back(each);
    }
    analysis.findings.push_back(std::move(finding));
  }

 private:
  // No other kernel runs at the same time, so what it leaves unused is idle. Operations are sorted by begin.
  static std::vector<bool> Alone(const std::vector<gpu::GpuOp>& ops) {
    std::vector<bool> alone(ops.size(), true);
    std::size_t longest = kNowhere;  // Of those so far the one that ends last.
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].copy || !ops[i].busy) continue;
      if (longest != kNowhere && ops[longest].end_ns > ops[i].begin_ns) {
        alone[i] = false;
        alone[longest] = false;
      }
      if (longest == kNowhere || ops[i].end_ns > ops[longest].end_ns) longest = i;
    }
    return alone;
  }
};

}  // namespace

std::unique_ptr<Cause> MakeSmallGrids() { return std::make_unique<SmallGrids>(); }

}  // namespace lockstep::analysis
