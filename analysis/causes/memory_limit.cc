// GPU memory is full: the allocator calls the driver within steps, and the GPU is idle each time.

#include <algorithm>

#include "analysis/causes/cause.h"
#include "analysis/causes/gap_evidence.h"
#include "analysis/core/source.h"
#include "analysis/passes.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

struct Memory {
  RankCost cost;
  GapEvidence gaps;
  std::int64_t calls = 0, call_ns = 0, allocated = -1, reserved = -1, capacity = -1;

  void Add(Memory&& next) {
    cost.Add(std::move(next.cost));
    gaps.Add(std::move(next.gaps));
    calls += next.calls, call_ns += next.call_ns;
  }
};

class MemoryLimit : public CauseOf<Memory> {
 public:
  std::optional<Memory> EvidenceOf(const RankEvents& events) const override {
    if (!events.gpu()) return std::nullopt;
    const gpu::RankView& view = events.view();
    Memory memory;
    memory.cost = RankCost(events);
    memory.gaps.Look(events, IdleKind::kAllocator, memory.cost, [](const gpu::GapPart&, std::int64_t) {});
    for (std::uint32_t row = 0; row < view.tables.api.rows(); ++row) {
      const std::string_view name = view.Text(view.tables.api.name[row]);
      if (!AsksDriver(name) || events.HostStretchAt(view.tables.api.begin_ns[row]) == kNowhere) continue;
      ++memory.calls;
      memory.call_ns += view.tables.api.duration_ns[row];
    }
    return memory;
  }

  void ExamineMemory(std::size_t i, const RankEvents& events, std::uint16_t busiest) override {
    if (!FoundOn(i)) return;
    Memory& memory = *FoundOn(i);
    const tables::Table table = tables::RankTable(tables::kMemoryTable, events.view(), {});
    const std::size_t kind = tables::ColumnOf(table, "memory"), device = tables::ColumnOf(table, "device"),
                      allocated = tables::ColumnOf(table, "peak_allocated_bytes"),
                      reserved = tables::ColumnOf(table, "peak_reserved_bytes"),
                      capacity = tables::ColumnOf(table, "capacity_bytes");
    for (const auto& row : table.rows)
      if (tables::TextOfCell(row[kind]) == "gpu" && tables::IntOf(row[device]) == busiest) {
        memory.allocated = tables::IntOf(row[allocated], -1);
        memory.reserved = tables::IntOf(row[reserved], -1);
        memory.capacity = tables::IntOf(row[capacity], -1);
      }
    // Only the change is known, not what was allocated before, so there is no share of the whole.
    if (memory.reserved < 0) memory.allocated = -1;
  }

  void Report(const Context& context, Analysis& analysis) override {
    const std::int64_t whole = analysis.summary.terms.Sum();
    std::vector<RankCost> costs;
    std::int64_t calls = 0, call_ns = 0, stretches = 0;
    const Memory* fullest = nullptr;
    const auto share = [](const Memory& m) {
      return m.capacity > 0 && m.allocated >= 0 ? static_cast<double>(m.allocated) / static_cast<double>(m.capacity)
                                                : -1.0;
    };
    Evidence rows{{"rank", "peak_allocated_bytes", "peak_reserved_bytes", "capacity_bytes", "driver_calls",
                   "driver_call_ns", "gpu_idle_ns"},
                  {}};
    for (const Memory* one : found()) {
      costs.push_back(one->cost);
      calls += one->calls, call_ns += one->call_ns;
      stretches += static_cast<std::int64_t>(one->cost.step.size());
      if (fullest == nullptr || share(*one) > share(*fullest)) fullest = one;
      rows.rows.push_back({one->cost.rank, Evidence::OrUnknown(one->allocated), Evidence::OrUnknown(one->reserved),
                           Evidence::OrUnknown(one->capacity), one->calls, one->call_ns, one->cost.Total()});
    }
    std::vector<const GapEvidence*> gaps;
    for (const Memory* one : found()) gaps.push_back(&one->gaps);
    if (fullest == nullptr) return;
    const Cost cost = CostOf(costs, whole, context.options().seed);
    // What the caching allocator holds beyond what is allocated does not count: it keeps memory that was freed.
    const bool full = share(*fullest) >= rules::kNearlyAll;
    const bool stalls = cost.ns > 0 && cost.share >= rules::kWorthShare;
    if (!full && !stalls) return;
    Finding finding;
    finding.id = FindingId::kMemoryLimit;
    Clauses level;
    if (share(*fullest) >= 0)
      level.all = {Say(Word::kMemoryLevel, {{"allocated", Size{static_cast<std::uint64_t>(fullest->allocated)}},
                                            {"capacity", Size{static_cast<std::uint64_t>(fullest->capacity)}},
                                            {"share", Share{share(*fullest)}}})};
    if (stalls) {
      finding.said.headline = {Say(Word::kMemoryCalls, {{"idle", PartOf(cost, whole)}, {"full", full}})};
      finding.said.brief = {Say(cost.per_step ? Word::kMemoryCallsInStepsBrief : Word::kMemoryCallsBrief)};
      const Value mean_calls = cost.per_step
                                   ? Value(MeanNum{static_cast<double>(calls) / static_cast<double>(stretches)})
                                   : Value(Num{calls});
      finding.said.evidence = {
          Say(Word::kMemoryCallsEvidence, {{"calls", mean_calls},
                                           {"per_step", cost.per_step},
                                           {"each", Ns{call_ns / std::max<std::int64_t>(1, calls)}}})};
      AddTo(finding.said.evidence, level.all);
      SetPrice(cost, finding);
      finding.upper_bound = true;
    } else {
      finding.said.headline = {Say(Word::kMemoryFull, {{"rank", Index{fullest->cost.rank}}, {"level", level}})};
      finding.said.brief = {Say(Word::kMemoryFullBrief)};
      const auto reserved = static_cast<std::uint64_t>(std::max<std::int64_t>(0, fullest->reserved));
      finding.said.evidence = {Say(Word::kMemoryFullEvidence, {{"level", level}, {"reserved", Size{reserved}}})};
      finding.rank = found().size() > 1 ? -1 : fullest->cost.rank;
    }
    const Source source = SourceOf(context.timeline());
    finding.said.action = (full ? Advise(source, Word::kMemoryFullAction, Word::kMemoryFullTorchAction)
                                : Advise(source, Word::kMemoryCallsAction, Word::kMemoryCallsTorchAction))
                              .all;
    finding.explain = stalls ? GapEvidence::Rows(gaps) : std::move(rows);
    analysis.findings.push_back(std::move(finding));
  }

 private:
  static bool AsksDriver(std::string_view name) {
    for (const std::string_view start :
         {"cudaMalloc", "cudaFree", "hipMalloc", "hipFree", "cuMemAlloc", "cuMemFree", "cuMemCreate", "cuMemRelease"})
      if (name.starts_with(start))
        return name.find("Host") == std::string_view::npos && name.find("Async") == std::string_view::npos;
    return false;
  }
};

}  // namespace

std::unique_ptr<Cause> MakeMemoryLimit() { return std::make_unique<MemoryLimit>(); }

}  // namespace lockstep::analysis
