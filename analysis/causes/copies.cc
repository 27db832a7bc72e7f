// Copies that nothing hides. Those to the GPU from pageable host memory are a cause of their own, priced on the
// critical path: they go through a pinned staging buffer, and the host waits for the staging.

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "analysis/causes/cause.h"
#include "analysis/causes/gap_evidence.h"
#include "analysis/core/source.h"
#include "analysis/passes.h"
#include "core/interval.h"

namespace lockstep::analysis {
namespace {

// How each kind is named, and what to do about it. Memory sets and copies within a GPU have one remedy.
struct Direction {
  std::uint8_t kind;
  Word name, action, torch_action;
};
constexpr Direction kDirections[] = {
    {schema::CopyKind::kHostToDevice, Word::kCopiesToGpu, Word::kCopiesToGpuAction, Word::kCopiesToGpuTorchAction},
    {schema::CopyKind::kDeviceToHost, Word::kCopiesFromGpu, Word::kCopiesFromGpuAction,
     Word::kCopiesFromGpuTorchAction},
    {schema::CopyKind::kDeviceToDevice, Word::kCopiesInGpu, Word::kCopiesInGpuAction, Word::kCopiesInGpuTorchAction},
    {schema::CopyKind::kMemset, Word::kCopiesMemset, Word::kCopiesInGpuAction, Word::kCopiesInGpuTorchAction},
    {schema::CopyKind::kPeer, Word::kCopiesPeer, Word::kCopiesPeerAction, Word::kCopiesPeerAction},
    {schema::CopyKind::kHostToHost, Word::kCopiesOnHost, Word::kCopiesPeerAction, Word::kCopiesPeerAction},
    {schema::CopyKind::kUnknown, Word::kCopiesAny, Word::kCopiesPeerAction, Word::kCopiesPeerAction},
};

const Direction& DirectionOf(std::uint8_t kind) {
  return *std::find_if(std::begin(kDirections), std::end(kDirections) - 1,
                       [kind](const Direction& each) { return each.kind == kind; });
}

// Copies within stretches, by kind and the host's side.
struct Group {
  std::int64_t count = 0, bytes = 0, ns = 0, exposed_ns = 0, host_ns = 0;

  void operator+=(const Group& next) {
    count += next.count, bytes += next.bytes, ns += next.ns, exposed_ns += next.exposed_ns, host_ns += next.host_ns;
  }
};
using Groups = std::map<std::pair<std::uint8_t, std::uint8_t>, Group>;

bool Pageable(const Groups::key_type& kind) {
  return kind == Groups::key_type(schema::CopyKind::kHostToDevice, schema::HostMemory::kPageable);
}

struct Copies {
  RankCost pageable, others;
  Groups groups;

  void Add(Copies&& next) {
    pageable.Add(std::move(next.pageable)), others.Add(std::move(next.others));
    AddSums(groups, next.groups);
  }
};

class ExposedCopies : public CauseOf<Copies> {
 public:
  std::optional<Copies> EvidenceOf(const RankEvents& events) const override {
    if (!events.gpu()) return std::nullopt;
    const auto& table = events.view().tables.copies;
    const auto& ops = events.activity().timeline.ops;
    const auto kind_of = [&](const gpu::GpuOp& op) { return std::pair(table.kind[op.row], table.host_memory[op.row]); };
    std::vector<Interval> to_gpu_pageable, others, kernels;
    for (const gpu::GpuOp& op : ops)
      if (op.copy)
        (Pageable(kind_of(op)) ? to_gpu_pageable : others).push_back({op.begin_ns, op.end_ns});
      else if (op.busy)
        kernels.push_back({op.begin_ns, op.end_ns});
    const IntervalSet working = Unite(Normalize(std::move(kernels)), events.host_communication());
    const IntervalSet pageable = Normalize(std::move(to_gpu_pageable));
    const IntervalSet exposed = Subtract(Subtract(Normalize(std::move(others)), working), pageable);
    Copies copies;
    copies.pageable = RankCost::OfPaths(events);
    copies.others = RankCost(events);
    for (std::size_t s = 0; s < events.stretches().size(); ++s)
      copies.others.ns[s] = TotalWithin(exposed, events.stretches()[s].window);
    for (const gpu::GpuOp& op : ops) {
      if (!op.copy || events.ExaminedBefore(op.begin_ns)) continue;
      // Those that reach into a stretch, wherever they began.
      const auto next =
          std::partition_point(events.stretches().begin(), events.stretches().end(),
                               [&](const gpu::RankView::Step& stretch) { return stretch.window.end <= op.begin_ns; });
      if (next == events.stretches().end() || next->window.begin >= op.end_ns) continue;
      const Interval at{op.begin_ns, op.end_ns};
      copies.groups[kind_of(op)] += {1, static_cast<std::int64_t>(table.bytes[op.row]), at.end - at.begin,
                                     TotalWithin(Pageable(kind_of(op)) ? pageable : exposed, at),
                                     op.api != schema::kNone ? events.view().tables.api.duration_ns[op.api] : 0};
    }
    for (std::size_t p = 0; p < events.paths().size(); ++p)
      for (const gpu::PathPiece& piece : events.paths()[p].path.pieces) {
        if (piece.edge != gpu::PathEdge::kOp && piece.edge != gpu::PathEdge::kCut) continue;
        const gpu::GpuOp& op = ops[piece.op];
        if (op.copy && Pageable(kind_of(op))) copies.pageable.ns[p] += piece.end_ns - piece.begin_ns;
      }
    // The time of staging, before and after the GPU copies.
    std::map<std::size_t, std::size_t> path_of;
    for (std::size_t p = 0; p < events.paths().size(); ++p) path_of[events.paths()[p].stretch] = p;
    GapEvidence().Look(events,
                       [&](const gpu::Gap& gap, std::size_t stretch, const gpu::GapPart& part, std::int64_t ns) {
                         if (RankEvents::KindOf(gap, part) != IdleKind::kCopy) return false;
                         if (const auto path = path_of.find(stretch); path != path_of.end())
                           copies.pageable.ns[path->second] += ns;
                         return true;
                       });
    return copies;
  }

  void Report(const Context& context, Analysis& analysis) override {
    const std::int64_t whole = analysis.summary.terms.Sum();
    std::vector<RankCost> pageable, others;
    Evidence rows{{"rank", "kind", "host_memory", "copies", "bytes", "copy_ns", "exposed_ns", "host_call_ns"}, {}};
    Groups all;
    for (const Copies* one : found()) {
      pageable.push_back(one->pageable), others.push_back(one->others);
      AddSums(all, one->groups);
      for (const auto& [kind, g] : one->groups)
        rows.rows.push_back(
            {one->pageable.rank, kind.first, kind.second, g.count, g.bytes, g.ns, g.exposed_ns, g.host_ns});
    }
    const auto add = [&](FindingId id, const std::vector<RankCost>& costs, const auto& say) {
      const Cost cost = CostOf(costs, whole, context.options().seed);
      if (cost.ns <= 0) return;
      Finding finding;
      finding.id = id;
      if (!say(PartOf(cost, whole), finding.said)) return;
      finding.upper_bound = true;
      SetPrice(cost, finding);
      finding.explain = rows;
      analysis.findings.push_back(std::move(finding));
    };
    const Source source = SourceOf(context.timeline());
    add(FindingId::kCopyPageable, pageable, [&](const Part& cost, Said& said) {
      std::int64_t to_gpu = 0;
      for (const auto& [kind, group] : all) to_gpu += kind.first == schema::CopyKind::kHostToDevice ? group.count : 0;
      const Group& group = all[{schema::CopyKind::kHostToDevice, schema::HostMemory::kPageable}];
      if (group.count == 0) return false;
      said.headline = {Say(Word::kCopiesPageable, {{"cost", cost}})};
      said.brief = {Say(Word::kCopiesPageableBrief)};
      said.evidence = {Say(Word::kCopiesPageableEvidence, {{"copies", Num{group.count}},
                                                           {"all_copies", Num{to_gpu}},
                                                           {"bytes", SizeOfEach(group)},
                                                           {"rate", RateOf(group)},
                                                           {"call", Ns{group.host_ns / group.count}}})};
      said.action = Advise(source, Word::kCopiesPageableAction, Word::kCopiesPageableTorchAction).all;
      return true;
    });
    add(FindingId::kCopyExposed, others, [&](const Part& cost, Said& said) {
      const Groups::value_type* most = nullptr;
      std::int64_t exposed_ns = 0;
      for (const auto& each : all) {
        if (Pageable(each.first)) continue;
        exposed_ns += each.second.exposed_ns;
        if (!most || each.second.exposed_ns > most->second.exposed_ns) most = &each;
      }
      if (exposed_ns == 0) return false;
      const Group& group = most->second;
      const Direction& direction = DirectionOf(most->first.first);
      const Clauses name{{Say(direction.name)}};
      said.headline = {Say(Word::kCopiesExposed, {{"cost", cost}, {"direction", name}})};
      said.brief = {Say(Word::kCopiesExposedBrief, {{"direction", name}})};
      said.evidence = {Say(Word::kCopiesExposedEvidence,
                           {{"share", Share{static_cast<double>(group.exposed_ns) / static_cast<double>(exposed_ns)}},
                            {"copies", Num{group.count}},
                            {"direction", name},
                            {"pinned", most->first.second == schema::HostMemory::kPinned},
                            {"pageable", most->first.second == schema::HostMemory::kPageable},
                            {"bytes", SizeOfEach(group)},
                            {"rate", RateOf(group)}})};
      said.action = Advise(source, direction.action, direction.torch_action).all;
      return true;
    });
  }

 private:
  static Size SizeOfEach(const Group& group) { return {static_cast<std::uint64_t>(group.bytes / group.count)}; }
  static Rate RateOf(const Group& group) {
    return {static_cast<double>(group.bytes) / (static_cast<double>(std::max<std::int64_t>(1, group.ns)) * 1e-9)};
  }
};

}  // namespace

std::unique_ptr<Cause> MakeExposedCopies() { return std::make_unique<ExposedCopies>(); }

}  // namespace lockstep::analysis
