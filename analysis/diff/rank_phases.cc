#include "analysis/diff/rank_phases.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "analysis/core/statistics.h"
#include "analysis/rules/diff.h"
#include "core/rules/common.h"
#include "merge/timeline/blocked_time.h"
#include "merge/timeline/rank_pass.h"

namespace lockstep::diff {
namespace {

using schema::Category;

std::string NameOfPhase(std::uint8_t category) {
  for (const auto& value : Category::kValues)
    if (value.code == category) return std::string(value.name);
  return {};
}

// Ranks of both runs in one phase.
struct BothRanks {
  std::int32_t rank;
  const Spread *base, *now;
  Difference difference;
};

class PhaseComparer {
 public:
  PhaseComparer(std::int64_t steps, double step_ns)
      : few_(std::cmp_less(steps, rules::kEnough)), least_ns_(rules::kDiffLeastChange * step_ns) {}

  Difference Apart(const Spread& base, const Spread& now) const {
    return few_ ? DifferenceOfFew(base, now, rules::kDiffWidenNames) : DifferenceOf(base, now, rules::kDiffWidenNames);
  }

  // `base_ns`: what it is a change of. Few steps show large ones only.
  bool Counts(const Difference& change, double base_ns) const {
    const double beyond = few_ ? std::max(least_ns_, rules::kLittle * base_ns) : 0;
    return (change.low > beyond || change.high < -beyond) && std::fabs(change.value) >= least_ns_;
  }

  void Compare(const std::string& phase, bool kernels, std::vector<BothRanks> ranks,
               std::vector<PhaseChange>& changes) const {
    double base_ns = 0, now_ns = 0;
    std::vector<double> by_rank;
    Difference common;  // Ranks share what disturbs them: their mean is no surer than one of them.
    for (BothRanks& rank : ranks) {
      rank.difference = Apart(*rank.base, *rank.now);
      by_rank.push_back(rank.difference.value);
      common.low += (rank.difference.low - rank.difference.value) / static_cast<double>(ranks.size());
      common.high += (rank.difference.high - rank.difference.value) / static_cast<double>(ranks.size());
      base_ns += rank.base->center / static_cast<double>(ranks.size());
      now_ns += rank.now->center / static_cast<double>(ranks.size());
    }
    // Of one rank all is its own; of two the one that changed less shows what both have.
    common.value = ranks.size() == 1 ? 0 : analysis::CommonChange(by_rank);
    common.low += common.value;
    common.high += common.value;
    const bool shared = Counts(common, base_ns);
    if (shared) changes.push_back({phase, kernels, -1, base_ns, base_ns + common.value, common, 0});
    for (const BothRanks& rank : ranks) {
      Difference own = rank.difference;
      own.value -= common.value;
      own.low -= common.value;
      own.high -= common.value;
      if (Counts(own, rank.base->center))
        changes.push_back(
            {phase, kernels, rank.rank, rank.base->center, rank.now->center, own, shared ? common.value : 0});
    }
  }

 private:
  const bool few_;
  const double least_ns_;
};

}  // namespace

PhasesOfRank::PhasesOfRank(const schema::RankTables& tables, std::size_t steps)
    : tables_(tables), steps_(steps), training_(merge::TrainingThread(tables)) {
  const auto& ranges = tables.ranges;
  const bool gpu = tables.kernels.rows() > 0;
  for (std::size_t row = 0; row < ranges.rows(); ++row)
    if (ranges.category[row] != Category::kNone && ranges.duration_ns[row] > 0 &&
        (gpu || ranges.thread[row] == training_))
      stretches_[ranges.thread[row]].push_back(
          {{ranges.begin_ns[row], ranges.begin_ns[row] + ranges.duration_ns[row]}, ranges.category[row]});
  for (auto& [thread, stretches] : stretches_) {
    std::stable_sort(stretches.begin(), stretches.end(),
                     [](const auto& a, const auto& b) { return a.window.begin < b.window.begin; });
    stretches = merge::Innermost(stretches);
  }
  if (gpu || stretches_.empty()) return;
  for (const merge::PhaseStretch& stretch : stretches_[training_])
    if (stretch.category != Category::kCommunication) own_[stretch.category].push_back(stretch.window);
  const IntervalSet away = merge::InCommunication(tables, training_, merge::FindBlockedTime(tables, training_));
  for (auto& [phase, set] : own_) set = Subtract(Normalize(std::move(set)), away);
}

std::uint8_t PhasesOfRank::PhaseAt(std::uint32_t thread, std::int64_t time_ns) const {
  const auto at = stretches_.find(thread);
  if (at == stretches_.end()) return Category::kNone;
  const auto after = std::upper_bound(at->second.begin(), at->second.end(), time_ns,
                                      [](std::int64_t t, const auto& stretch) { return t < stretch.window.begin; });
  if (after == at->second.begin() || time_ns >= after[-1].window.end) return Category::kNone;
  return after[-1].category;
}

void PhasesOfRank::AddKernel(std::uint32_t kernel, std::uint32_t call, std::size_t step) {
  if (stretches_.empty() || tables_.kernels.work[kernel] != schema::Work::kCompute) return;
  const std::int64_t launched_ns = tables_.api.begin_ns[call];
  std::uint8_t phase = PhaseAt(tables_.api.thread[call], launched_ns);
  if (phase == Category::kNone) phase = PhaseAt(training_, launched_ns);
  if (phase == Category::kNone) return;
  std::vector<double>& sums = sums_ns_[phase];
  sums.resize(steps_);
  sums[step] += static_cast<double>(tables_.kernels.duration_ns[kernel]);
}

void PhasesOfRank::AddHost(Interval window, std::size_t step) {
  for (const auto& [phase, set] : own_) {
    std::vector<double>& sums = sums_ns_[phase];
    sums.resize(steps_);
    sums[step] += static_cast<double>(TotalWithin(set, window));
  }
}

std::vector<RankPhase> PhasesOfRank::Take(std::int32_t rank) const {
  std::vector<RankPhase> phases;
  for (const auto& [phase, sums] : sums_ns_)
    phases.push_back({rank, NameOfPhase(phase), tables_.kernels.rows() > 0, SpreadOf(sums)});
  return phases;
}

std::vector<PhaseChange> CompareRankPhases(const std::vector<RankPhase>& base, const std::vector<RankPhase>& now,
                                           std::int64_t steps, double step_ns) {
  std::map<std::pair<std::string, bool>, std::map<std::int32_t, std::pair<const Spread*, const Spread*>>> phases;
  for (const RankPhase& row : base) phases[{row.phase, row.kernels}][row.rank].first = &row.own_ns;
  for (const RankPhase& row : now) phases[{row.phase, row.kernels}][row.rank].second = &row.own_ns;
  const PhaseComparer comparer(steps, step_ns);
  std::vector<PhaseChange> changes;
  for (const auto& [key, by_rank] : phases) {
    std::vector<BothRanks> ranks;
    for (const auto& [rank, both] : by_rank)
      if (both.first != nullptr && both.second != nullptr && both.first->count > 0 && both.second->count > 0)
        ranks.push_back({rank, both.first, both.second, {}});
    if (!ranks.empty()) comparer.Compare(key.first, key.second, std::move(ranks), changes);
  }
  std::stable_sort(changes.begin(), changes.end(), [](const PhaseChange& a, const PhaseChange& b) {
    return std::fabs(a.change.value) > std::fabs(b.change.value);
  });
  return changes;
}

}  // namespace lockstep::diff
