// The GPU is idle while the host does something else for longer than launches take: the host's own time, by the range,
// function, operator or call it was in.

#include <algorithm>
#include <map>
#include <tuple>

#include "analysis/causes/cause.h"
#include "analysis/causes/gap_evidence.h"
#include "analysis/causes/recording_advice.h"
#include "analysis/core/format.h"
#include "analysis/core/source.h"
#include "analysis/core/step_names.h"
#include "analysis/passes.h"
#include "analysis/rules/causes.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

// What the host was in. Only the program's own ranges and functions can be removed from the step.
enum class Place : std::uint8_t { kNothing, kModel, kRange, kOperator, kCall };
struct WorkKey {
  Place place = Place::kNothing;
  std::string name;  // "" for kNothing.
  friend auto operator<=>(const WorkKey&, const WorkKey&) = default;
};
struct HostWorkFound {
  RankCost cost;
  std::map<WorkKey, std::int64_t> by_work;
  GapEvidence rows;

  void Add(HostWorkFound&& next) {
    cost.Add(std::move(next.cost));
    AddSums(by_work, next.by_work);
    rows.Add(std::move(next.rows));
  }
};

WorkKey WorkOf(const RankEvents& events, const gpu::GapPart& part) {
  if (part.call != schema::kNone || part.kind == gpu::PartKind::kLoad) {
    const std::string name = events.NameOf(part);
    return {Place::kCall, name.empty() ? Told(Word::kHostLoadsCode) : name};
  }
  if (part.range == schema::kNone || IsProfilerStep(events.RangeName(part.range))) return {};
  // Ranges that torch.distributed makes around its calls, "nccl:all_reduce", belong to the framework like operators.
  const bool framework = part.kind == gpu::PartKind::kOperator || events.RangeName(part.range).starts_with("nccl:");
  const Place place = framework ? Place::kOperator : events.Encloses(part.range) ? Place::kModel : Place::kRange;
  return {place, events.NameOf(part)};
}

Clause ShareOf(const WorkKey& work, double share) {
  return Say(work.place == Place::kNothing ? Word::kHostShareOutside
             : work.place == Place::kModel ? Word::kHostShareBetween
                                           : Word::kHostShareIn,
             {{"share", Share{share}}, {"name", work.name}});
}

class HostWork : public CauseOf<HostWorkFound> {
 public:
  std::optional<HostWorkFound> EvidenceOf(const RankEvents& events) const override {
    if (!events.gpu()) return std::nullopt;
    HostWorkFound all{RankCost(events), {}, {}};
    all.rows.Look(events, IdleKind::kHostWork, all.cost,
                  [&](const gpu::GapPart& part, std::int64_t ns) { all.by_work[WorkOf(events, part)] += ns; });
    return all;
  }

  void Report(const Context& context, Analysis& analysis) override {
    const std::int64_t whole = analysis.summary.terms.Sum();
    const GapSums in_gaps = SumGaps(found());
    const std::int64_t total = in_gaps.ns, gaps = in_gaps.gaps;
    std::map<WorkKey, std::int64_t> by_work;
    std::int64_t stretches = 0;
    for (const HostWorkFound* one : found()) {
      stretches += static_cast<std::int64_t>(one->cost.step.size());
      for (const auto& [work, ns] : one->by_work) by_work[work] += ns;
    }
    const Cost cost = CostOf(in_gaps.costs, whole, context.options().seed);
    if (cost.ns <= 0 || total <= 0) return;
    std::vector<std::pair<WorkKey, std::int64_t>> order(by_work.begin(), by_work.end());
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    std::map<Place, std::int64_t> by_place;
    for (const auto& [work, ns] : order) by_place[work.place] += ns;

    const Source source = SourceOf(context.timeline());
    Finding finding;
    finding.id = FindingId::kHostWork;
    const Part idle = PartOf(cost, whole);
    const WorkKey& first = order.front().first;
    const std::int64_t between = by_place[Place::kNothing] + by_place[Place::kModel];
    const bool takes_most = MostOf(order.front().second, total);
    if (takes_most && (first.place == Place::kRange || first.place == Place::kCall)) {
      finding.said.headline = {Say(Word::kHostInOne, {{"idle", idle}, {"name", first.name}})};
      finding.said.brief = {Say(Word::kHostInOneBrief, {{"short_name", ShortName(first.name, 32)}})};
      finding.said.action = {first.place == Place::kCall
                                 ? Say(Word::kHostInCallAction, {{"record_later", Clauses{{ToRecordLater(context)}}}})
                                 : Say(Word::kHostInOneAction, {{"name", first.name}})};
    } else if (MostOf(by_place[Place::kOperator] + by_place[Place::kCall], total)) {
      const auto* library = LargestLibrary(order);
      finding.said.headline = {Say(Word::kHostInOperators, {{"idle", idle}, {"most", Mainly(library, total)}})};
      finding.said.brief = {Say(Word::kHostInOperatorsBrief)};
      finding.said.action =
          (cost.per_step ? Advise(source, Word::kHostDoLess, Word::kHostDoLessTorch)
                         : Clauses{{Say(Word::kHostFirstCallsAction,
                                        {{"record_later", Clauses{{ToRecordLater(context)}}},
                                         {"advice", Advise(source, Word::kUseGraphs, Word::kUseGraphsTorch)}})}})
              .all;
    } else if (MostOf(between, total)) {
      // Where most of it is between operators; outside of all ranges has no name.
      const auto at = std::find_if(order.begin(), order.end(), [](const auto& one) {
        return one.first.place == Place::kModel || one.first.place == Place::kNothing;
      });
      const auto* model = at == order.end() || at->first.place == Place::kNothing ? nullptr : &*at;
      finding.said.headline = {Say(Word::kHostBetweenOperators, {{"idle", idle}, {"most", Mainly(model, total)}})};
      finding.said.brief = {Say(Word::kHostBetweenOperatorsBrief)};
      finding.said.action = {Say(Word::kHostBetweenOperatorsAction,
                                 {{"name_host_work", Clauses{{ToNameHostWork(context)}}},
                                  {"advice", Advise(source, Word::kUseGraphsOrBatch, Word::kUseGraphsOrBatchTorch)}})};
    } else {
      finding.said.headline = {Say(Word::kHostElsewhere, {{"idle", idle}})};
      finding.said.brief = {Say(Word::kHostElsewhereBrief)};
      finding.said.action = {Say(Word::kHostElsewhereAction, {{"name_host_work", Clauses{{ToNameHostWork(context)}}}})};
    }
    const auto of = [&](const OfWork& one) {
      return ShareOf(one.first, static_cast<double>(one.second) / static_cast<double>(total));
    };
    std::vector<Clause> works{of(order[0])};
    for (std::size_t i = 1; i < std::min(rules::kHostWorkListed, order.size()); ++i)
      if (!LittleOf(order[i].second, total)) works.push_back(of(order[i]));
    const Value count =
        cost.per_step ? Value(MeanNum{static_cast<double>(gaps) / static_cast<double>(stretches)}) : Value(Num{gaps});
    finding.said.evidence = {Say(Word::kHostGaps, {{"gaps", count},
                                                   {"per_step", cost.per_step},
                                                   {"each", Ns{total / std::max<std::int64_t>(1, gaps)}},
                                                   {"works", Clauses{works}}})};
    AddTo(finding.said.evidence, GapEvidence::AfterWaits(in_gaps.rows));
    finding.upper_bound = true;
    SetPrice(cost, finding);
    finding.explain = GapEvidence::Rows(in_gaps.rows);
    analysis.findings.push_back(std::move(finding));
  }

 private:
  using OfWork = std::pair<WorkKey, std::int64_t>;
  static const OfWork* LargestLibrary(const std::vector<OfWork>& order) {
    for (const OfWork& one : order)
      if (one.first.place == Place::kOperator || one.first.place == Place::kCall) return &one;
    return nullptr;
  }
  static Clauses Mainly(const OfWork* one, std::int64_t total) {
    if (one == nullptr) return {};
    return {{Say(
        MostOf(one->second, total) ? Word::kHostMostly : Word::kHostMost,
        {{"name", one->first.name}, {"share", Share{static_cast<double>(one->second) / static_cast<double>(total)}}})}};
  }
};

}  // namespace

std::unique_ptr<Cause> MakeHostWork() { return std::make_unique<HostWork>(); }

}  // namespace lockstep::analysis
