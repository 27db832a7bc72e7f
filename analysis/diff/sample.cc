#include "analysis/diff/sample.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "analysis/context.h"
#include "analysis/core/format.h"
#include "analysis/diff/measures.h"
#include "analysis/rules/diff.h"
#include "analysis/stacks/blocked_places.h"
#include "analysis/words/render.h"
#include "core/collective.h"
#include "core/loss.h"
#include "core/version.h"

namespace lockstep::diff {
namespace {

using analysis::Num;
using analysis::Ranks;
using analysis::Word;

void AddMeasures(const analysis::Context& context, RunSample& sample) {
  for (const Measure& measure : Measures()) {
    std::vector<double> series;
    for (const std::size_t row : context.usable_steps())
      if (const auto value = measure.of_step(context, row)) series.push_back(*value);
    // A series that is known for some of the steps only cannot be compared.
    if (series.size() != context.usable_steps().size()) series.clear();
    if (context.usable_steps().empty())
      if (const auto value = measure.of_step(context, analysis::kNowhere)) series.push_back(*value);
    sample.measures.push_back({std::string(measure.name), SpreadOf(series)});
  }
  std::vector<std::int64_t> lengths_ns;
  for (const std::size_t row : context.usable_steps()) lengths_ns.push_back(context.tables().steps.step_ns[row]);
  const std::optional<analysis::TwoGroups> groups = analysis::FindTwoGroups(lengths_ns);
  if (!groups) return;
  sample.long_steps = static_cast<std::int64_t>(groups->count);
  std::vector<double> others;
  for (const std::int64_t ns : lengths_ns)
    if (ns < groups->least_ns) others.push_back(static_cast<double>(ns));
  sample.other_steps_ns = SpreadOf(others);
}

void AddRanks(const analysis::Context& context, const analysis::Analysis& analysis, RunSample& sample) {
  for (std::size_t p = 0; p < context.ranks().size(); ++p) {
    RankSample rank;
    rank.rank = context.ranks()[p];
    rank.node = context.timeline().Text(context.tables().ranks.node[context.RankRow(p)]);
    std::vector<double> work;
    for (const std::size_t row : context.usable_steps())
      if (const std::size_t cell = context.Cell(row, p); cell != analysis::kNowhere) {
        work.push_back(static_cast<double>(context.TermsOf(cell).Own()));
        rank.blocked_ns += static_cast<double>(context.TermsOf(cell).blocked_ns);
      }
    rank.work_ns = SpreadOf(work);
    rank.blocked_ns /= static_cast<double>(std::max<std::size_t>(1, work.size()));
    for (const analysis::GpuRow& gpu : analysis.gpus)
      if (gpu.rank == rank.rank && gpu.sm_clock_mhz) rank.sm_clock_mhz = gpu.sm_clock_mhz;
    for (const analysis::Straggler& straggler : analysis.stragglers)
      if (straggler.rank == rank.rank) rank.straggler = straggler.cause;
    sample.rank_samples.push_back(std::move(rank));
  }
}

void AddCollectives(const analysis::Context& context, RunSample& sample) {
  struct PerStep {
    double count = 0;
    bool transfer_known = true, wait_known = true;
    std::vector<double> transfer, wait;  // Per usable step.
  };
  const auto& t = context.tables().collectives;
  const auto& usable = context.usable_steps();
  std::map<std::int64_t, std::size_t> position;
  for (std::size_t i = 0; i < usable.size(); ++i) position[context.tables().steps.index[usable[i]]] = i;
  std::map<std::tuple<std::uint8_t, std::uint32_t, std::uint64_t>, PerStep> kinds;
  for (std::size_t c = 0; c < t.rows(); ++c) {
    const auto at = position.find(t.step[c]);
    if (at == position.end()) continue;
    PerStep& kind = kinds[{t.kind[c], t.expected[c], t.bytes[c]}];
    if (kind.transfer.empty()) {
      kind.transfer.assign(usable.size(), 0);
      kind.wait.assign(usable.size(), 0);
    }
    kind.count += 1;
    // The first of those that share a kernel has the times of all.
    if (context.OfSameKernel(c)) continue;
    if (t.transfer_ns[c] < 0 || t.censored[c]) kind.transfer_known = false;
    if (t.wait_ns[c] < 0) kind.wait_known = false;
    kind.transfer[at->second] += static_cast<double>(std::max<std::int64_t>(0, t.transfer_ns[c]));
    kind.wait[at->second] += static_cast<double>(std::max<std::int64_t>(0, t.wait_ns[c]));
  }
  for (const auto& [key, kind] : kinds) {
    CollectiveSample row;
    row.op = Name(static_cast<CollectiveKind>(std::get<0>(key)));
    row.members = std::get<1>(key);
    row.bytes = std::get<2>(key);
    row.per_step = kind.count / static_cast<double>(usable.size());
    if (kind.transfer_known) row.transfer_ns = SpreadOf(kind.transfer);
    if (kind.wait_known) row.wait_ns = SpreadOf(kind.wait);
    sample.collectives.push_back(std::move(row));
  }
  std::stable_sort(sample.collectives.begin(), sample.collectives.end(),
                   [](const CollectiveSample& a, const CollectiveSample& b) {
                     return a.transfer_ns.center + a.wait_ns.center > b.transfer_ns.center + b.wait_ns.center;
                   });
  if (sample.collectives.size() > rules::kSampleCollectives) sample.collectives.resize(rules::kSampleCollectives);
}

void AddPhases(const analysis::Analysis& analysis, RunSample& sample) {
  struct Named {
    std::string_view name;
    std::int64_t analysis::Phases::*value;
  };
  static constexpr Named kPhases[] = {{"input", &analysis::Phases::input_ns},
                                      {"forward", &analysis::Phases::forward_ns},
                                      {"backward", &analysis::Phases::backward_ns},
                                      {"optimizer", &analysis::Phases::optimizer_ns},
                                      {"communication", &analysis::Phases::communication_ns},
                                      {"checkpoint", &analysis::Phases::checkpoint_ns}};
  for (const Named& phase : kPhases) {
    std::vector<double> series;
    bool any = false;
    for (const analysis::StepRow& step : analysis.steps) {
      if (!step.complete || step.warmup || step.ranks.empty()) continue;
      double sum = 0;
      for (const analysis::StepCell& cell : step.ranks)
        sum += cell.phases ? static_cast<double>((*cell.phases).*phase.value) : 0;
      any = any || sum > 0;
      series.push_back(sum / static_cast<double>(step.ranks.size()));
    }
    if (any) sample.phases.push_back({std::string(phase.name), SpreadOf(series)});
  }
}

void AddBlocked(const analysis::Context& context, RunSample& sample) {
  std::vector<const RankSample*> most;
  for (const RankSample& rank : sample.rank_samples)
    if (rank.blocked_ns > 0) most.push_back(&rank);
  std::stable_sort(most.begin(), most.end(),
                   [](const RankSample* a, const RankSample* b) { return a->blocked_ns > b->blocked_ns; });
  most.resize(std::min(most.size(), rules::kSampleBlockedRanks));
  std::map<std::string, std::vector<double>> places;
  const auto& cells = context.tables().step_ranks;
  for (const RankSample* rank : most) {
    const Result<schema::RankTables> tables = context.ReadRank(rank->rank);
    if (!tables.ok()) continue;
    std::vector<Interval> windows;
    std::vector<std::size_t> step_of;
    for (std::size_t i = 0; i < context.usable_steps().size(); ++i)
      if (const std::size_t cell = context.Cell(context.usable_steps()[i], context.Position(rank->rank));
          cell != analysis::kNowhere) {
        windows.push_back({cells.begin_ns[cell], cells.end_ns[cell]});
        step_of.push_back(i);
      }
    for (const auto& [place, sum] : analysis::BlockedWithin(tables.value(), windows)) {
      const analysis::BlockedAt at = analysis::Described(place, sum);
      std::vector<double>& series =
          places[Told(Word::kBlockedBrief,
                      {{"what", analysis::Clauses{{analysis::WaitName(at)}}}, {"line", analysis::LineOf(at)}})];
      series.resize(context.usable_steps().size());
      for (std::size_t i = 0; i < sum.ns.size(); ++i)
        series[step_of[i]] += static_cast<double>(sum.ns[i]) / static_cast<double>(most.size());
    }
  }
  for (const auto& [what, series] : places) sample.blocked.push_back({what, SpreadOf(series)});
  std::stable_sort(sample.blocked.begin(), sample.blocked.end(),
                   [](const BlockedSample& a, const BlockedSample& b) { return a.spread.center > b.spread.center; });
  if (sample.blocked.size() > rules::kSamplePlaces) sample.blocked.resize(rules::kSamplePlaces);
}

std::vector<std::string> WhyIncomplete(const analysis::Analysis& analysis) {
  std::vector<std::string> why;
  // Missing partners on those ranks follow from this and are not reported.
  const bool missing = !analysis.run.ranks_missing.empty();
  if (missing) why.push_back(Told(Word::kDiffMissing, {{"ranks", Ranks{analysis.run.ranks_missing}}}));
  if (!analysis.run.ranks_ended_early.empty())
    why.push_back(Told(Word::kDiffEndedEarly, {{"ranks", Ranks{analysis.run.ranks_ended_early}}}));
  if (analysis.trust.unmatched_collectives > 0 && !missing)
    why.push_back(Told(Word::kDiffUnmatched, {{"collectives", Num{analysis.trust.unmatched_collectives}}}));
  if (analysis.trust.clock_violations > 0)
    why.push_back(Told(Word::kDiffClocks, {{"collectives", Num{analysis.trust.clock_violations}}}));
  for (const analysis::LossRow& loss : analysis.losses)
    if (loss.data_loss && !(missing && loss.name == Info(Loss::kRankMissing).name) &&
        !(missing && loss.name == Info(Loss::kUnmatchedCollective).name))
      why.push_back(
          Told(Word::kDiffLoss, {{"loss", analysis::CountOf(static_cast<std::uint64_t>(loss.count), loss.sentence)},
                                 {"rank", analysis::If(loss.rank >= 0, analysis::Index{loss.rank})}}));
  if (why.empty() && analysis.incomplete()) why.push_back(analysis.verdict);
  return why;
}

}  // namespace

const MeasureSample* RunSample::Find(std::string_view name) const {
  for (const MeasureSample& measure : measures)
    if (measure.name == name) return &measure;
  return nullptr;
}

bool RunSample::BlockedKnown() const {
  const MeasureSample* blocked = Find("blocked_ns");
  return blocked != nullptr && blocked->spread.count > 0;
}

Result<RunSample> SampleOf(const merge::Timeline& timeline, const analysis::AnalyzeOptions& options,
                           std::string label) {
  analysis::AnalyzeOptions plain = options;
  plain.replay = false;
  LS_TRY(const analysis::Analysis analysis, analysis::Analyze(timeline, plain));
  const analysis::Context context(timeline, plain);
  RunSample sample;
  sample.label = std::move(label);
  sample.run_id = analysis.run.run_id;
  sample.job = analysis.run.job;
  sample.lockstep_version = LOCKSTEP_VERSION;
  sample.ranks = analysis.run.ranks_expected;
  sample.nodes = analysis.run.nodes.value_or(0);
  sample.gpu_ranks = analysis.run.gpu_ranks;
  sample.gpu_names = analysis.run.gpus;
  sample.steps_kind = timeline.Meta("step_source");
  if (context.steps().empty()) sample.steps_kind.clear();
  sample.classes = analysis.run.classes;
  sample.steps = static_cast<std::int64_t>(context.usable_steps().size());
  if (analysis.run.ranks_sharing_cores > 0) sample.shared_cores = analysis.run.shared_cores;
  sample.incomplete = WhyIncomplete(analysis);
  AddMeasures(context, sample);
  AddRanks(context, analysis, sample);
  AddBlocked(context, sample);
  if (sample.steps > 0) AddCollectives(context, sample);
  AddPhases(analysis, sample);
  if (analysis.buckets.current_cap_mb) sample.bucket_cap_mb = *analysis.buckets.current_cap_mb;
  LS_TRY(sample.names, NamesOf(context, sample.rank_phases));
  return sample;
}

}  // namespace lockstep::diff
