// Copies from pageable host memory go through a pinned staging buffer, and the host waits for the staging.

#include <algorithm>
#include <map>

#include "analysis/causes/cause.h"
#include "analysis/causes/gap_evidence.h"
#include "analysis/core/source.h"
#include "analysis/passes.h"

namespace lockstep::analysis {
namespace {

constexpr std::uint8_t kHostToDevice = schema::CopyKind::kHostToDevice, kPageable = schema::HostMemory::kPageable;

struct Copies {
  RankCost cost;
  std::int64_t count = 0, bytes = 0, ns = 0, all = 0, host_ns = 0;

  void Add(Copies&& next) {
    cost.Add(std::move(next.cost));
    count += next.count, bytes += next.bytes, ns += next.ns, all += next.all, host_ns += next.host_ns;
  }
};

class PageableCopies : public CauseOf<Copies> {
 public:
  std::optional<Copies> EvidenceOf(const RankEvents& events) const override {
    if (!events.gpu()) return std::nullopt;
    const auto& table = events.view().tables.copies;
    const auto& ops = events.activity().timeline.ops;
    Copies copies;
    copies.cost = RankCost::OfPaths(events);
    for (const gpu::GpuOp& op : ops) {
      if (!op.copy || table.kind[op.row] != kHostToDevice || events.StretchAt(op.begin_ns) == kNowhere) continue;
      ++copies.all;
      if (table.host_memory[op.row] != kPageable) continue;
      ++copies.count;
      copies.bytes += static_cast<std::int64_t>(table.bytes[op.row]);
      copies.ns += op.end_ns - op.begin_ns;
      if (op.api != schema::kNone) copies.host_ns += events.view().tables.api.duration_ns[op.api];
    }
    for (std::size_t p = 0; p < events.paths().size(); ++p)
      for (const gpu::PathPiece& piece : events.paths()[p].path.pieces) {
        if (piece.edge != gpu::PathEdge::kOp && piece.edge != gpu::PathEdge::kCut) continue;
        const gpu::GpuOp& op = ops[piece.op];
        if (op.copy && table.kind[op.row] == kHostToDevice && table.host_memory[op.row] == kPageable)
          copies.cost.ns[p] += piece.end_ns - piece.begin_ns;
      }
    // The time of staging, before and after the GPU copies.
    std::map<std::size_t, std::size_t> path_of;
    for (std::size_t p = 0; p < events.paths().size(); ++p) path_of[events.paths()[p].stretch] = p;
    GapEvidence().Look(events,
                       [&](const gpu::Gap& gap, std::size_t stretch, const gpu::GapPart& part, std::int64_t ns) {
                         if (RankEvents::KindOf(gap, part) != IdleKind::kCopy) return false;
                         if (const auto path = path_of.find(stretch); path != path_of.end())
                           copies.cost.ns[path->second] += ns;
                         return true;
                       });
    return copies;
  }

  void Report(const Context& context, Analysis& analysis) override {
    const std::int64_t whole = analysis.summary.terms.Sum();
    std::vector<RankCost> costs;
    Copies all;
    Evidence rows{{"rank", "pageable_copies", "copies_to_gpu", "bytes", "copy_ns", "host_call_ns"}, {}};
    for (const Copies* one : found()) {
      costs.push_back(one->cost);
      all.count += one->count, all.bytes += one->bytes, all.ns += one->ns, all.all += one->all;
      all.host_ns += one->host_ns;
      rows.rows.push_back({one->cost.rank, one->count, one->all, one->bytes, one->ns, one->host_ns});
    }
    const Cost cost = CostOf(costs, whole, context.options().seed);
    if (cost.ns <= 0 || all.count == 0) return;
    Finding finding;
    finding.id = FindingId::kCopyPageable;
    finding.said.headline = {Say(Word::kCopiesPageable, {{"cost", PartOf(cost, whole)}})};
    finding.said.brief = {Say(Word::kCopiesPageableBrief)};
    const double seconds = static_cast<double>(std::max<std::int64_t>(1, all.ns)) * 1e-9;
    finding.said.evidence = {
        Say(Word::kCopiesPageableEvidence, {{"copies", Num{all.count}},
                                            {"all_copies", Num{all.all}},
                                            {"bytes", Size{static_cast<std::uint64_t>(all.bytes / all.count)}},
                                            {"rate", Rate{static_cast<double>(all.bytes) / seconds}},
                                            {"call", Ns{all.host_ns / all.count}}})};
    finding.said.action =
        Advise(SourceOf(context.timeline()), Word::kCopiesPageableAction, Word::kCopiesPageableTorchAction).all;
    finding.upper_bound = true;
    SetPrice(cost, finding);
    finding.explain = std::move(rows);
    analysis.findings.push_back(std::move(finding));
  }
};

}  // namespace

std::unique_ptr<Cause> MakePageableCopies() { return std::make_unique<PageableCopies>(); }

}  // namespace lockstep::analysis
