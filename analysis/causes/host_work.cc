// The GPU is idle while the host does something else for longer than launches take: the host's own time, by the range,
// function, operator or call it was in.

#include <fmt/format.h>

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
    return {Place::kCall, name.empty() ? "loading GPU code" : name};
  }
  if (part.range == schema::kNone || IsProfilerStep(events.RangeName(part.range))) return {};
  // Ranges that torch.distributed makes around its calls, "nccl:all_reduce", belong to the framework like operators.
  const bool framework = part.kind == gpu::PartKind::kOperator || events.RangeName(part.range).starts_with("nccl:");
  const Place place = framework ? Place::kOperator : events.Encloses(part.range) ? Place::kModel : Place::kRange;
  return {place, events.NameOf(part)};
}

std::string Text(const WorkKey& work) {
  switch (work.place) {
    case Place::kNothing:
      return "between operators, outside all ranges";
    case Place::kModel:
      return fmt::format("between operators in \"{}\"", work.name);
    default:
      return fmt::format("in \"{}\"", work.name);
  }
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
    const std::string idle = OfTheStep(cost, whole);
    const WorkKey& first = order.front().first;
    const std::int64_t between = by_place[Place::kNothing] + by_place[Place::kModel];
    const bool takes_most = 2 * order.front().second > total;
    if (takes_most && (first.place == Place::kRange || first.place == Place::kCall)) {
      finding.headline = fmt::format("The GPU is idle for {} while the host is in \"{}\".", idle, first.name);
      finding.brief = fmt::format("GPU idle while the host is in {}", ShortName(first.name, 32));
      finding.action =
          first.place == Place::kCall
              ? fmt::format(
                    "first calls into the GPU's runtime initialise it and load code: {}; if it stays, call it "
                    "outside of the steps",
                    ToRecordLater(context))
              : fmt::format("take \"{}\" out of the step, into another thread, or do it while the GPU still has work",
                            first.name);
    } else if (2 * (by_place[Place::kOperator] + by_place[Place::kCall]) > total) {
      const auto* library = LargestLibrary(order);
      finding.headline =
          fmt::format("The GPU is idle for {} while the host works through operators{}.", idle, Mainly(library, total));
      finding.brief = "GPU idle: operators take too long on the host";
      finding.action =
          cost.per_step
              ? Advise(source,
                       "let the host do less per step: CUDA graphs, a larger batch, a faster or less shared core",
                       "let the host do less per step: torch.compile or CUDA graphs, a larger batch, a faster or less "
                       "shared core; profiling operators slows them as well")
              : fmt::format("first calls load libraries and tune: {}; if it stays: {}", ToRecordLater(context),
                            Advise(source, "CUDA graphs", "torch.compile or CUDA graphs"));
    } else if (2 * between > total) {
      // Where most of it is between operators; outside of all ranges has no name.
      const auto at = std::find_if(order.begin(), order.end(), [](const auto& one) {
        return one.first.place == Place::kModel || one.first.place == Place::kNothing;
      });
      const auto* model = at == order.end() || at->first.place == Place::kNothing ? nullptr : &*at;
      finding.headline = fmt::format("The GPU is idle for {} while the host is in Python between operators{}.", idle,
                                     Mainly(model, total));
      finding.brief = "GPU idle: Python between operators";
      finding.action = "see what it does: " + ToNameHostWork(context) + "; then do less of it per step: " +
                       Advise(source, "CUDA graphs, a larger batch", "torch.compile or CUDA graphs, a larger batch");
    } else {
      finding.headline = fmt::format("The GPU is idle for {} while the host does other work between launches.", idle);
      finding.brief = "GPU idle while the host does other work";
      finding.action = "see what the host does there: " + ToNameHostWork(context);
    }
    const auto of = [&](const std::pair<WorkKey, std::int64_t>& one) {
      return fmt::format("{} {}", Percent(one.second, total), Text(one.first));
    };
    const std::string count =
        cost.per_step ? PluralOfMean(static_cast<double>(gaps) / static_cast<double>(stretches), "gap") + " per step"
                      : Plural(gaps, "gap");
    finding.evidence = fmt::format("{}, {} of it each on average: {}", count,
                                   Duration(total / std::max<std::int64_t>(1, gaps)), of(order[0]));
    for (std::size_t i = 1; i < std::min<std::size_t>(3, order.size()); ++i)
      if (order[i].second * 10 > total) finding.evidence += ", " + of(order[i]);
    finding.evidence += GapEvidence::AfterWaits(in_gaps.rows);
    finding.upper_bound = true;
    finding.confidence = takes_most ? 0.6 : 0.5;
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
  // It is named as the main one only if it takes at least half of the time.
  static std::string Mainly(const OfWork* one, std::int64_t total) {
    if (one == nullptr) return {};
    return fmt::format(", {} \"{}\"{}", 2 * one->second > total ? "mainly in" : "most in", one->first.name,
                       2 * one->second > total ? "" : fmt::format(" ({})", Percent(one->second, total)));
  }
};

}  // namespace

std::unique_ptr<Cause> MakeHostWork() { return std::make_unique<HostWork>(); }

}  // namespace lockstep::analysis
