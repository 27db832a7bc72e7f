#include "merge/steps/steps.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace lockstep::merge {
namespace {

// definitions.md: marks, ProfilerStep#N, step ranges, else torch hooks.
int Preference(std::uint8_t source) {
  switch (static_cast<StepSource::Value>(source)) {
    case StepSource::kMark:
      return 0;
    case StepSource::kProfilerStep:
      return 1;
    case StepSource::kRange:
      return 2;
    case StepSource::kTorch:
      return 3;
    case StepSource::kSignature:
      return 4;
  }
  return 5;
}

// Whether the rank's windows have the step whole.
bool InSomeWindow(const MatchRank& rank, std::int64_t index) {
  if (rank.windows == nullptr) return true;
  return std::any_of(rank.windows->begin(), rank.windows->end(), [&](const RecordedWindow& window) {
    return window.first_step <= index && index < window.end_step;
  });
}

// Whether the rank's file covers most of the time in which others have this step.
bool Covers(const MatchRank& rank, const std::vector<MatchRank>& ranks, const std::vector<std::vector<RankStep>>& steps,
            std::int64_t index) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto at = std::lower_bound(steps[r].begin(), steps[r].end(), index,
                                     [](const RankStep& step, std::int64_t i) { return step.index < i; });
    if (at == steps[r].end() || at->index != index || !at->complete) continue;
    const std::int64_t begin = ranks[r].clock->ToCluster(at->window.begin),
                       end = ranks[r].clock->ToCluster(at->window.end);
    return std::min(end, rank.window.end) - std::max(begin, rank.window.begin) > (end - begin) / 2;
  }
  return false;
}

// The thread with most marks of this source: others mark their own loops.
std::uint32_t MarkingThread(const schema::Steps& steps, std::uint8_t source) {
  std::map<std::uint32_t, std::size_t> marks;
  for (std::size_t i = 0; i < steps.rows(); ++i)
    if (steps.source[i] == source) ++marks[steps.thread[i]];
  std::uint32_t thread = schema::kNone;
  std::size_t most = 0;
  for (const auto& [of, count] : marks)
    if (count > most) thread = of, most = count;
  return thread;
}

// Threads that serve requests number them together: one sequence. Threads with loops of their own do not.
bool NumberedTogether(const schema::Steps& steps, std::uint8_t source) {
  std::vector<std::pair<std::int64_t, std::int64_t>> marks;
  for (std::size_t i = 0; i < steps.rows(); ++i)
    if (steps.source[i] == source) marks.emplace_back(steps.begin_ns[i], steps.index[i]);
  std::stable_sort(marks.begin(), marks.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return std::adjacent_find(marks.begin(), marks.end(),
                            [](const auto& a, const auto& b) { return b.second <= a.second; }) == marks.end();
}

// Numbers grow and windows do not overlap; `bad` counts rows that broke this.
std::vector<RankStep> Marked(const schema::Steps& steps, std::uint8_t source, std::uint64_t& bad) {
  const bool together = NumberedTogether(steps, source);
  const std::uint32_t thread = MarkingThread(steps, source);
  std::vector<RankStep> marked;
  for (std::size_t i = 0; i < steps.rows(); ++i) {
    if (steps.source[i] != source || (!together && steps.thread[i] != thread) || steps.end_ns[i] < steps.begin_ns[i])
      continue;
    marked.push_back({steps.index[i],
                      {steps.begin_ns[i], steps.end_ns[i]},
                      steps.complete[i] != 0,
                      steps.warmup[i] != 0,
                      steps.cpu_ns[i]});
  }
  std::stable_sort(marked.begin(), marked.end(),
                   [](const RankStep& a, const RankStep& b) { return a.window.begin < b.window.begin; });
  std::vector<RankStep> kept;
  for (RankStep& step : marked) {
    if (!kept.empty() && step.index <= kept.back().index) {
      ++bad;
      continue;
    }
    if (!kept.empty()) step.window.begin = std::max(step.window.begin, kept.back().window.end);
    step.window.end = std::max(step.window.end, step.window.begin);
    kept.push_back(step);
  }
  return kept;
}

}  // namespace

JobSteps FindSteps(const std::vector<MatchRank>& ranks, const MatchedCollectives& matched) {
  JobSteps job;
  job.ranks.resize(ranks.size());

  // The best source that every rank with marks has; if they share none, each its best.
  std::set<int> shared{0, 1, 2, 3, 4};
  bool any = false;
  for (const MatchRank& rank : ranks) {
    std::set<int> of_rank;
    for (const std::uint8_t source : rank.tables->steps.source) of_rank.insert(Preference(source));
    if (of_rank.empty()) continue;
    any = true;
    std::erase_if(shared, [&](int preference) { return !of_rank.contains(preference); });
  }
  if (!any) {
    job.ranks = StepsFromSignature(ranks, matched);
    job.source = StepSource::kSignature;
    if (std::all_of(job.ranks.begin(), job.ranks.end(), [](const auto& steps) { return steps.empty(); })) {
      job.losses.push_back(MakeLoss(-1, Loss::kStepsUnmarked, 1, ""));
      return job;
    }
  }
  for (std::size_t r = 0; r < ranks.size() && any; ++r) {
    const schema::Steps& steps = ranks[r].tables->steps;
    if (steps.rows() == 0) continue;
    std::uint8_t source = steps.source[0];
    for (const std::uint8_t other : steps.source)
      if (shared.empty() ? Preference(other) < Preference(source) : Preference(other) == *shared.begin())
        source = other;
    std::uint64_t bad = 0;
    job.ranks[r] = Marked(steps, source, bad);
    job.source = static_cast<StepSource::Value>(source);
    job.mismatched += bad;
    if (bad > 0)
      job.losses.push_back(MakeLoss(ranks[r].rank, Loss::kStepMismatch, bad, "step numbers that do not grow"));
  }

  // Complete on every rank that has steps at all. What windows and deaths cut is no mismatch.
  std::map<std::int64_t, std::size_t> complete;
  std::size_t with_steps = 0;
  for (const auto& steps : job.ranks) {
    with_steps += !steps.empty();
    for (const RankStep& step : steps) complete[step.index] += step.complete;
  }
  std::uint64_t mismatched = 0;
  std::string first;
  for (const auto& [index, count] : complete) {
    if (count == with_steps) {
      job.common.push_back(index);
      continue;
    }
    if (count == 0) continue;  // Cut short everywhere.
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const auto& steps = job.ranks[r];
      if (steps.empty()) continue;
      const auto at = std::lower_bound(steps.begin(), steps.end(), index,
                                       [](const RankStep& step, std::int64_t i) { return step.index < i; });
      const bool has = at != steps.end() && at->index == index;
      if (has || (ranks[r].in_parts && !InSomeWindow(ranks[r], index))) continue;
      const bool beyond =
          (ranks[r].cut_begin && index < steps.front().index) || (ranks[r].cut_end && index > steps.back().index);
      // Profilers may start a step later on one rank than on another; other numbers at the same time are no
      // other piece of the run.
      if (beyond &&
          (ingest::MetaValue(*ranks[r].tables, "imported").empty() || !Covers(ranks[r], ranks, job.ranks, index)))
        continue;
      if (mismatched++ == 0)
        first = "first: step " + std::to_string(index) + " is not on rank " + std::to_string(ranks[r].rank);
      break;
    }
  }
  if (with_steps > 0 && with_steps < ranks.size()) {
    for (std::size_t r = 0; r < ranks.size(); ++r)
      if (job.ranks[r].empty() && !ranks[r].cut_end && !ranks[r].cut_begin)
        job.losses.push_back(
            MakeLoss(ranks[r].rank, Loss::kStepMismatch, complete.size(), "no steps marked on this rank"));
  }
  if (mismatched > 0) job.losses.push_back(MakeLoss(-1, Loss::kStepMismatch, mismatched, first));
  job.mismatched += mismatched;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto cut = static_cast<std::uint64_t>(
        std::count_if(job.ranks[r].begin(), job.ranks[r].end(), [](const RankStep& step) { return !step.complete; }));
    if (cut > 0) job.losses.push_back(MakeLoss(ranks[r].rank, Loss::kStepIncomplete, cut, ""));
  }
  return job;
}

}  // namespace lockstep::merge
