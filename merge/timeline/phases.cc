#include "merge/timeline/phases.h"

#include <algorithm>
#include <map>

#include "merge/timeline/breakdown.h"

namespace lockstep::merge {

std::vector<PhaseStretch> Innermost(const std::vector<PhaseStretch>& ranges) {
  std::vector<PhaseStretch> stretches, open;
  std::int64_t at = 0;
  const auto emit = [&](std::int64_t until) {
    while (!open.empty()) {
      const PhaseStretch& top = open.back();
      const std::int64_t end = std::min(top.window.end, until);
      if (end > at) {
        if (!stretches.empty() && stretches.back().category == top.category && stretches.back().window.end == at)
          stretches.back().window.end = end;
        else
          stretches.push_back({{at, end}, top.category});
        at = end;
      }
      if (top.window.end > until) return;
      open.pop_back();
    }
  };
  for (const PhaseStretch& range : ranges) {
    if (range.window.end <= range.window.begin) continue;
    emit(range.window.begin);
    at = range.window.begin;
    open.push_back(range);
  }
  emit(INT64_MAX);
  return stretches;
}

void PhaseRanges::Add(const schema::Ranges& ranges) {
  for (std::size_t i = 0; i < ranges.rows(); ++i) {
    const std::uint8_t category = ranges.category[i];
    if (category == schema::Category::kNone || ranges.thread[i] != thread_ || ranges.duration_ns[i] <= 0) continue;
    const Interval window{ranges.begin_ns[i], ranges.begin_ns[i] + ranges.duration_ns[i]};
    ranges_.push_back({window, category});
  }
}

schema::TlStepPhases PhaseRanges::Table(const std::vector<RankStep>& steps, Interval total, std::int32_t rank) {
  schema::TlStepPhases table;
  if (ranges_.empty() && unrecorded_.empty()) return table;
  std::stable_sort(ranges_.begin(), ranges_.end(),
                   [](const PhaseStretch& a, const PhaseStretch& b) { return a.window.begin < b.window.begin; });

  std::map<std::uint8_t, IntervalSet> sets;
  for (const PhaseStretch& stretch : Innermost(ranges_)) sets[stretch.category].push_back(stretch.window);
  if (!unrecorded_.empty()) sets[kPhaseUnrecordedComm] = unrecorded_;
  std::map<std::uint8_t, Measure> measures;
  for (auto& [phase, set] : sets) {
    set = Normalize(std::move(set));
    measures.emplace(phase, Measure(set));
  }
  const auto add = [&](std::int64_t index, Interval window) {
    for (const auto& [phase, measure] : measures)
      if (const std::int64_t ns = measure.Within(window); ns > 0)
        table.Append({.index = index, .rank = rank, .phase = phase, .phase_ns = ns});
  };
  for (const RankStep& step : steps) add(step.index, step.window);
  add(-1, total);
  return table;
}

}  // namespace lockstep::merge
