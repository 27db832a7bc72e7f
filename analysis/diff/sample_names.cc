// Counts and times what has a name, step by step.

#include <algorithm>
#include <map>
#include <utility>

#include "analysis/context.h"
#include "analysis/core/statistics.h"
#include "analysis/core/step_names.h"
#include "analysis/diff/names.h"
#include "analysis/gpu/launch_index.h"
#include "analysis/rules/diff.h"
#include "core/function_name.h"
#include "core/interval.h"
#include "merge/parallel.h"
#include "trace/file/strings.h"

namespace lockstep::diff {
namespace {

using schema::kNone;

struct Sums {
  std::int64_t launches = 0, ns = 0;
};
using BySteps = std::vector<Sums>;
using ByName = std::map<std::pair<NameKind, std::string>, BySteps>;

// Which of the steps a moment belongs to.
class StepsOfRank {
 public:
  void Add(std::int64_t begin_ns, std::int64_t end_ns, std::size_t step) { steps_.push_back({begin_ns, end_ns, step}); }
  void Sort() {
    std::sort(steps_.begin(), steps_.end(), [](const Step& a, const Step& b) { return a.begin_ns < b.begin_ns; });
  }
  bool empty() const { return steps_.empty(); }
  template <typename Work>
  void ForEach(Work&& work) const {
    for (const Step& step : steps_) work(Interval{step.begin_ns, step.end_ns}, step.step);
  }
  std::size_t At(std::int64_t time_ns) const {
    const auto after = std::upper_bound(steps_.begin(), steps_.end(), time_ns,
                                        [](std::int64_t t, const Step& step) { return t < step.begin_ns; });
    return after == steps_.begin() || time_ns >= after[-1].end_ns ? analysis::kNowhere : after[-1].step;
  }

 private:
  struct Step {
    std::int64_t begin_ns, end_ns;
    std::size_t step;
  };
  std::vector<Step> steps_;
};

class RankNames {
 public:
  RankNames(const analysis::Context& context, const std::vector<std::size_t>& steps, std::size_t position,
            const schema::RankTables& tables)
      : tables_(tables), steps_(steps.size()), phases_(tables, steps.size()) {
    const auto& cells = context.tables().step_ranks;
    const auto& marks = tables.steps;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const std::size_t cell = context.Cell(steps[i], position);
      if (cell != analysis::kNowhere) gpu_.Add(cells.begin_ns[cell], cells.end_ns[cell], i);
      // The host runs ahead of a GPU, whose steps are other stretches of time.
      const std::int64_t index = context.tables().steps.index[steps[i]];
      for (std::size_t row = 0; row < marks.rows(); ++row)
        if (marks.index[row] == index && marks.complete[row]) host_.Add(marks.begin_ns[row], marks.end_ns[row], i);
    }
    gpu_.Sort();
    host_.Sort();
    if (host_.empty()) host_ = gpu_;
  }

  ByName Take() {
    Kernels();
    Ranges();
    host_.ForEach([&](Interval window, std::size_t step) { phases_.AddHost(window, step); });
    return std::move(by_name_);
  }

  std::vector<RankPhase> Phases(std::int32_t rank) const { return phases_.Take(rank); }

  std::array<bool, kNameKinds> recorded{};

 private:
  void Kernels() {
    const auto& kernels = tables_.kernels;
    recorded[static_cast<std::size_t>(NameKind::kKernel)] = kernels.rows() > 0;
    if (kernels.rows() == 0) return;
    const gpu::LaunchIndex launches = gpu::FindLaunches(tables_);
    std::vector<BySteps> by_id(tables_.strings.rows());
    for (std::uint32_t row = 0; row < kernels.rows(); ++row) {
      if (kernels.work[row] == schema::Work::kSyncKernel) continue;
      const std::uint32_t call = launches.of_kernel[row];
      const std::size_t step = call != kNone ? host_.At(tables_.api.begin_ns[call]) : gpu_.At(kernels.begin_ns[row]);
      Count(by_id, kernels.name[row], step, kernels.duration_ns[row]);
      if (call != kNone && step != analysis::kNowhere) phases_.AddKernel(row, call, step);
    }
    Merge(by_id, NameKind::kKernel);
  }

  void Ranges() {
    const auto& ranges = tables_.ranges;
    const auto is_op = [&](std::uint32_t row) { return ranges.source[row] == schema::RangeSource::kCpuOp; };
    std::vector<BySteps> ops(tables_.strings.rows()), others(tables_.strings.rows());
    std::vector<std::int64_t> self;
    for (std::uint32_t row = 0; row < ranges.rows(); ++row) {
      const bool op = is_op(row);
      if (ranges.kind[row] == schema::RangeKind::kMark || (!op && ranges.source[row] > schema::RangeSource::kTorch))
        continue;
      if (op && self.empty()) self = gpu::RangeNest(tables_, gpu::RangeNest::kCpuOps).SelfTimes();
      if (!op && analysis::IsProfilerStep(trace::TextOf(tables_, ranges.name[row]))) continue;
      recorded[static_cast<std::size_t>(op ? NameKind::kOperator : NameKind::kRange)] = true;
      Count(op ? ops : others, ranges.name[row], host_.At(ranges.begin_ns[row]),
            op ? self[row] : ranges.duration_ns[row]);
    }
    Merge(ops, NameKind::kOperator);
    Merge(others, NameKind::kRange);
  }

  void Count(std::vector<BySteps>& by_id, std::uint32_t name, std::size_t step, std::int64_t ns) const {
    if (step == analysis::kNowhere || name >= by_id.size()) return;
    if (by_id[name].empty()) by_id[name].resize(steps_);
    ++by_id[name][step].launches;
    by_id[name][step].ns += ns;
  }

  void Merge(const std::vector<BySteps>& by_id, NameKind kind) {
    for (std::uint32_t id = 0; id < by_id.size(); ++id) {
      if (by_id[id].empty()) continue;
      const std::string_view text = trace::TextOf(tables_, id);
      BySteps& sums = by_name_[{kind, kind == NameKind::kKernel ? TellingFunction(text) : std::string(text)}];
      sums.resize(steps_);
      for (std::size_t i = 0; i < steps_; ++i) {
        sums[i].launches += by_id[id][i].launches;
        sums[i].ns += by_id[id][i].ns;
      }
    }
  }

  const schema::RankTables& tables_;
  const std::size_t steps_;
  StepsOfRank gpu_, host_;
  ByName by_name_;
  PhasesOfRank phases_;
};

}  // namespace

Result<NamesSample> NamesOf(const analysis::Context& context, std::vector<RankPhase>& phases) {
  NamesSample sample;
  const auto& usable = context.usable_steps();
  const std::size_t stride = (usable.size() + rules::kSampleNameSteps - 1) / rules::kSampleNameSteps;
  std::vector<std::size_t> steps;
  for (std::size_t i = 0; i < usable.size(); i += stride) steps.push_back(usable[i]);
  if (steps.empty()) return sample;

  const std::size_t ranks = context.ranks().size();
  ByName all;
  std::array<std::int64_t, kNameKinds> having{};
  const auto block = static_cast<std::size_t>(merge::ThreadsFor(context.options().jobs));
  for (std::size_t begin = 0; begin < ranks; begin += block) {
    std::vector<ByName> names(std::min(block, ranks - begin));
    std::vector<std::array<bool, kNameKinds>> recorded(names.size());
    std::vector<std::vector<RankPhase>> of_ranks(names.size());
    merge::ParallelFor(context.options().jobs, names.size(), [&](std::size_t i) {
      const Result<schema::RankTables> tables = context.ReadRank(context.ranks()[begin + i]);
      if (!tables.ok()) return;  // Whoever reads it for the analysis says so.
      RankNames rank(context, steps, begin + i, tables.value());
      names[i] = rank.Take();
      recorded[i] = rank.recorded;
      of_ranks[i] = rank.Phases(context.ranks()[begin + i]);
    });
    for (std::size_t i = 0; i < names.size(); ++i) {
      phases.insert(phases.end(), of_ranks[i].begin(), of_ranks[i].end());
      for (std::size_t kind = 0; kind < kNameKinds; ++kind) having[kind] += recorded[i][kind];
      for (auto& [key, of_rank] : names[i]) {
        BySteps& sums = all[key];
        sums.resize(steps.size());
        for (std::size_t s = 0; s < steps.size(); ++s) {
          sums[s].launches += of_rank[s].launches;
          sums[s].ns += of_rank[s].ns;
        }
      }
    }
  }
  std::vector<double> kernels(steps.size(), 0.0);
  for (const auto& [key, sums] : all) {
    std::vector<double> launches, ns;
    const auto n = static_cast<double>(having[static_cast<std::size_t>(key.first)]);
    for (const Sums& step : sums) {
      launches.push_back(static_cast<double>(step.launches) / n);
      ns.push_back(static_cast<double>(step.ns) / n);
    }
    if (key.first == NameKind::kKernel)
      for (std::size_t s = 0; s < kernels.size(); ++s) kernels[s] += launches[s];
    sample.rows.push_back({key.first, key.second, SpreadOf(launches, analysis::Statistic::kMedian),
                           SpreadOf(ns, analysis::Statistic::kMedian)});
  }
  if (having[static_cast<std::size_t>(NameKind::kKernel)] > 0) sample.kernels_per_step = LowerMedian(kernels);
  std::stable_sort(sample.rows.begin(), sample.rows.end(), [](const NameSample& a, const NameSample& b) {
    return std::pair(a.kind, -a.time_ns.center) < std::pair(b.kind, -b.time_ns.center);
  });
  std::array<std::size_t, kNameKinds> kept{};
  std::erase_if(sample.rows, [&](const NameSample& row) {
    return ++kept[static_cast<std::size_t>(row.kind)] > rules::kSampleNames;
  });
  for (std::size_t kind = 0; kind < kNameKinds; ++kind) {
    sample.recorded[kind] = having[kind] > 0;
    sample.more[kind] = kept[kind] > rules::kSampleNames;
  }
  return sample;
}

}  // namespace lockstep::diff
