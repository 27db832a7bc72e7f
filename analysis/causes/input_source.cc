// Finds what loads the input for which ranks wait, and so what to change. For CPU ranks input.cc has found that they
// wait; for a GPU it is the idle time in which the host loads input.

#include <algorithm>
#include <map>

#include "analysis/causes/cause.h"
#include "analysis/causes/gap_evidence.h"
#include "analysis/causes/recording_advice.h"
#include "analysis/core/source.h"
#include "analysis/passes.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

struct Loading {
  RankCost cost;  // For a GPU rank: its idle time.
  GapEvidence rows;
  std::map<std::string, std::int64_t> unmarked;  // Idle time before the forward pass where nothing is marked as input.
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> by_name;  // Count, ns.
  std::int64_t steps = 0;
  bool per_step = false;

  void Add(Loading&& next) {
    cost.Add(std::move(next.cost));
    rows.Add(std::move(next.rows));
    AddSums(unmarked, next.unmarked);
    for (const auto& [name, sum] : next.by_name) {
      by_name[name].first += sum.first;
      by_name[name].second += sum.second;
    }
    steps += next.steps;
  }
  bool any() const { return !by_name.empty() || !unmarked.empty(); }
};

class InputSource : public CauseOf<Loading> {
 public:
  std::optional<Loading> EvidenceOf(const RankEvents& events) const override {
    constexpr std::uint8_t kInput = schema::Category::kInput;
    const auto& ranges = events.view().tables.ranges;
    Loading loading;
    loading.steps = static_cast<std::int64_t>(events.stretches().size());
    loading.per_step = events.per_step();
    if (events.gpu()) {
      loading.cost = RankCost(events);
      loading.rows.Look(events, IdleKind::kInput, loading.cost, [&](const gpu::GapPart& part, std::int64_t ns) {
        if (part.kind == gpu::PartKind::kBeforeForward)
          loading.unmarked[events.Encloses(part.range) ? std::string() : events.NameOf(part)] += ns;
      });
    }
    for (std::uint32_t row = 0; row < ranges.rows(); ++row) {
      if (ranges.category[row] != kInput || events.HostStretchAt(ranges.begin_ns[row]) == kNowhere) continue;
      // The outermost range names the loader.
      if (const std::uint32_t parent = events.nest().Parent(row);
          parent != schema::kNone && events.PhaseOf(parent) == kInput)
        continue;
      auto& [count, ns] = loading.by_name[std::string(events.RangeName(row))];
      ++count;
      ns += ranges.duration_ns[row];
    }
    return loading;
  }

  void Report(const Context& context, Analysis& analysis) override {
    Loading all;
    std::vector<RankCost> costs;
    std::vector<const GapEvidence*> rows;
    for (const Loading* one : found()) {
      if (!one->any()) continue;
      for (const auto& [name, sum] : one->by_name) {
        all.by_name[name].first += sum.first;
        all.by_name[name].second += sum.second;
      }
      for (const auto& [name, ns] : one->unmarked) all.unmarked[name] += ns;
      all.steps += one->steps;
      all.per_step |= one->per_step;
      costs.push_back(one->cost);
      rows.push_back(&one->rows);
    }
    if (const Cost cost = CostOf(costs, analysis.summary.terms.Sum(), context.options().seed);
        cost.ns > 0 && cost.share >= rules::kNameShare)
      AddFinding(context, cost, all, rows, analysis);
    const auto at = std::find_if(analysis.findings.begin(), analysis.findings.end(),
                                 [](const Finding& f) { return f.id == FindingId::kInputBound; });
    if (at == analysis.findings.end() || all.by_name.empty()) return;
    const auto most = std::max_element(all.by_name.begin(), all.by_name.end(),
                                       [](const auto& a, const auto& b) { return a.second.second < b.second.second; });
    const auto& [name, sum] = *most;
    const bool per_step = all.per_step && all.steps > 0;
    at->said.evidence.push_back(
        Say(per_step ? Word::kInputMostPerStep : Word::kInputMost,
            {{"name", ShortName(name)},
             {"times", per_step ? Value(MeanNum{static_cast<double>(sum.first) / static_cast<double>(all.steps)})
                                : Value(Num{sum.first})},
             {"each", Ns{sum.second / std::max<std::int64_t>(1, sum.first)}}}));
    // torch names its iterators: torch/utils/data/dataloader.py, record_function in __next__ (1.13, 2.x).
    if (name.find("_SingleProcessDataLoaderIter") != std::string::npos)
      at->said.action = {Say(Word::kInputNoWorkersAction)};
    else if (name.find("_MultiProcessingDataLoaderIter") != std::string::npos)
      at->said.action = {Say(Word::kInputSlowWorkersAction)};
    else if (name.find("DataLoader") != std::string::npos || name.find("dataloader") != std::string::npos)
      at->said.action = {Say(Word::kInputWorkersAction)};
  }

 private:
  static void AddFinding(const Context& context, const Cost& cost, const Loading& all,
                         const std::vector<const GapEvidence*>& rows, Analysis& analysis) {
    const std::int64_t whole = analysis.summary.terms.Sum();
    Finding finding;
    finding.id = FindingId::kInputBound;
    const Part idle = PartOf(cost, whole);
    Num gaps{0};
    for (const GapEvidence* one : rows) gaps.value += one->gaps();
    if (all.unmarked.empty()) {
      finding.said.headline = {Say(Word::kInputIdle, {{"idle", idle}})};
      finding.said.brief = {Say(Word::kInputIdleBrief)};
      finding.said.evidence = {Say(Word::kInputGaps, {{"gaps", gaps}})};
      finding.said.action = {Say(Word::kInputAction)};
    } else {
      const auto most = std::max_element(all.unmarked.begin(), all.unmarked.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
      std::int64_t total = 0;
      for (const auto& [name, ns] : all.unmarked) total += ns;
      // Whether the program has an optimizer or a forward pass need not be known.
      const Source source = SourceOf(context.timeline());
      finding.said.headline = {Say(Word::kInputUnmarked, {{"idle", idle}, {"name", most->first}})};
      finding.said.brief = {Say(Word::kInputUnmarkedBrief)};
      finding.said.evidence = {Say(Word::kInputUnmarkedGaps, {{"gaps", gaps}}),
                               Say(!most->first.empty() ? Word::kInputUnmarkedIn
                                   : source.torch       ? Word::kInputUnmarkedPython
                                                        : Word::kInputUnmarkedOutside,
                                   {{"share", Share{static_cast<double>(most->second) / static_cast<double>(total)}},
                                    {"name", most->first}})};
      finding.said.action = {
          Say(Word::kInputUnmarkedAction, {{"advice", Advise(source, Word::kInputThread, Word::kInputDataLoader)},
                                           {"name_host_work", Clauses{{ToNameHostWork(context)}}}})};
    }
    finding.upper_bound = true;
    SetPrice(cost, finding);
    finding.explain = GapEvidence::Rows(rows);
    analysis.findings.push_back(std::move(finding));
  }
};

}  // namespace

std::unique_ptr<Cause> MakeInputSource() { return std::make_unique<InputSource>(); }

}  // namespace lockstep::analysis
