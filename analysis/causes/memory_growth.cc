// Reports memory that grows from step to step: a leak.

#include <algorithm>
#include <cmath>

#include "analysis/causes/cause.h"
#include "analysis/core/source.h"
#include "analysis/rules/causes.h"
#include "analysis/tables/engine/cells.h"
#include "analysis/tables/engine/kinds.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

struct Growth {
  std::int32_t rank = -1;
  bool gpu = true;
  std::int64_t device = -1, peak = 0, capacity = -1, steps = 0;
  double slope = 0, low = 0, high = 0;
};

class MemoryGrowth : public Cause {
 public:
  void Prepare(std::size_t ranks) override { found_.resize(ranks); }
  void Examine(std::size_t, const RankEvents&) override {}
  void ExamineMemory(std::size_t i, const RankEvents& events, std::uint16_t) override {
    if (events.per_step() && events.stretches().size() >= rules::kMemoryGrowthSteps &&
        events.view().tables.gpu_memory.rows() > 0)
      found_[i] = GrowthOf(events);
  }

  void Report(const Context& context, Analysis& analysis) override {
    const Growth* worst = nullptr;
    const auto weight = [](const Growth& g) { return g.slope * (g.gpu ? rules::kMemoryGpuTimes : 1); };
    std::size_t grow = 0;
    Evidence rows{{"rank", "device", "bytes_per_step", "low", "high", "peak_bytes", "steps"}, {}};
    for (const std::vector<Growth>& rank : found_)
      for (const Growth& g : rank) {
        ++grow;
        rows.rows.push_back({g.rank, Evidence::OrUnknown(g.device), std::llround(g.slope), std::llround(g.low),
                             std::llround(g.high), g.peak, g.steps});
        if (worst == nullptr || weight(g) > weight(*worst)) worst = &g;
      }
    if (worst == nullptr) return;
    const auto bytes = [](double n) { return Size{static_cast<std::uint64_t>(std::max(0.0, n))}; };
    Finding finding;
    finding.id = FindingId::kMemoryGrowth;
    finding.said.headline = {Say(
        Word::kMemoryGrows,
        {{"gpu", worst->gpu}, {"growth", bytes(worst->slope)}, {"rank", Index{worst->rank}}, {"others", grow > 1}})};
    finding.said.brief = {Say(Word::kMemoryGrowsBrief, {{"gpu", worst->gpu}})};
    finding.said.evidence = {Say(Word::kMemoryGrowsEvidence, {{"low", bytes(worst->low)},
                                                              {"high", bytes(worst->high)},
                                                              {"steps", Index{worst->steps}},
                                                              {"peak", bytes(static_cast<double>(worst->peak))}})};
    if (worst->capacity > worst->peak) {
      const double steps_left = static_cast<double>(worst->capacity - worst->peak) / worst->slope;
      finding.said.evidence.push_back(
          Say(Word::kMemoryFullAfterEvidence, {{"steps_left", Num{static_cast<std::int64_t>(steps_left)}}}));
    }
    const Source source = SourceOf(context.timeline());
    finding.said.action =
        (worst->gpu ? Advise(source, Word::kMemoryGrowsOnGpuAction, Word::kMemoryGrowsOnGpuTorchAction)
                    : Advise(source, Word::kMemoryGrowsOnHostAction, Word::kMemoryGrowsOnHostTorchAction))
            .all;
    finding.explain = std::move(rows);
    analysis.findings.push_back(std::move(finding));
  }

 private:
  static std::vector<Growth> GrowthOf(const RankEvents& events) {
    std::vector<Growth> all = Slopes(events, 0);
    const std::vector<Growth> late = Slopes(events, events.stretches().size() / 2);
    // What is filled once grows little in the second half of the steps; a leak goes on.
    std::erase_if(all, [&](const Growth& g) {
      const auto same = std::find_if(late.begin(), late.end(),
                                     [&](const Growth& l) { return l.gpu == g.gpu && l.device == g.device; });
      return same == late.end() || !HalfOf(same->slope, g.slope);
    });
    return all;
  }

  static std::vector<Growth> Slopes(const RankEvents& events, std::size_t from) {
    // The same computation as the table's, over the steps from there on.
    gpu::RankView view;
    const gpu::RankView& all = events.view();
    view.rank = all.rank;
    view.timeline = all.timeline;
    view.tables.gpu_memory = all.tables.gpu_memory;
    view.tables.devices = all.tables.devices;
    view.tables.strings = all.tables.strings;
    view.tables.string_bytes = all.tables.string_bytes;
    std::int64_t steps = 0;
    for (std::size_t i = 0; i < all.tables.steps.rows(); ++i) {
      const std::size_t at = events.HostStretchAt(all.tables.steps.begin_ns[i]);
      if (at == kNowhere || at < from) continue;
      view.tables.steps.Append({.index = all.tables.steps.index[i],
                                .begin_ns = all.tables.steps.begin_ns[i],
                                .end_ns = all.tables.steps.end_ns[i],
                                .complete = 1});
      view.host_windows.push_back({all.tables.steps.begin_ns[i], all.tables.steps.end_ns[i]});
      ++steps;
    }
    std::sort(view.host_windows.begin(), view.host_windows.end(),
              [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
    const tables::Table table = tables::RankTable(tables::kMemoryTable, view, {});
    const std::size_t kind = tables::ColumnOf(table, "memory"), device = tables::ColumnOf(table, "device"),
                      peak = tables::ColumnOf(table, "peak_allocated_bytes"),
                      capacity = tables::ColumnOf(table, "capacity_bytes"),
                      slope = tables::ColumnOf(table, "growth_bytes_per_step"),
                      low = tables::ColumnOf(table, "growth_low_bytes_per_step"),
                      high = tables::ColumnOf(table, "growth_high_bytes_per_step"),
                      grows = tables::ColumnOf(table, "grows");
    std::vector<Growth> found;
    for (const auto& row : table.rows) {
      if (tables::TextOfCell(row[grows]) != "yes") continue;
      Growth g;
      g.rank = all.rank;
      g.gpu = tables::TextOfCell(row[kind]) == "gpu";
      g.device = tables::IntOf(row[device], -1);
      g.peak = tables::IntOf(row[peak]);
      g.capacity = tables::IntOf(row[capacity], -1);
      g.steps = steps;
      g.slope = tables::RealOf(row[slope]), g.low = tables::RealOf(row[low]), g.high = tables::RealOf(row[high]);
      const double grown = g.slope * static_cast<double>(steps);
      if (grown >= rules::kWorthShare * static_cast<double>(g.peak) && grown >= rules::kMemoryGrowthBytes)
        found.push_back(g);
    }
    return found;
  }

  std::vector<std::vector<Growth>> found_;  // By rank.
};

}  // namespace

std::unique_ptr<Cause> MakeMemoryGrowth() { return std::make_unique<MemoryGrowth>(); }

}  // namespace lockstep::analysis
