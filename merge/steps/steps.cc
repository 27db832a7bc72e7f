#include "merge/steps/steps.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/rules/common.h"
#include "merge/rules/match.h"

namespace lockstep::merge {
namespace {

// Sources of marks, the best first (definitions.md).
constexpr StepSource::Value kPreferred[] = {StepSource::kMark, StepSource::kProfilerStep, StepSource::kRange,
                                            StepSource::kTorch, StepSource::kSignature};

// Position in kPreferred; sources of a newer version come last.
std::size_t Preference(std::uint8_t source) {
  return static_cast<std::size_t>(std::ranges::find(kPreferred, source) - kPreferred);
}

// Whether one of the rank's windows contains the whole step.
bool InSomeWindow(const MatchRank& rank, std::int64_t index) {
  if (rank.windows == nullptr) return true;
  return std::any_of(rank.windows->begin(), rank.windows->end(), [&](const RecordedWindow& window) {
    return window.first_step <= index && index < window.end_step;
  });
}

// Whether the rank's file covers most of the time in which others have this step.
bool CoveredByOthers(const MatchRank& rank, const std::vector<MatchRank>& ranks,
                     const std::vector<std::vector<RankStep>>& steps, std::int64_t index) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const RankStep* step = FindStep(steps[r], index);
    if (step == nullptr || !step->complete) continue;
    const std::int64_t begin = ranks[r].clock->ToCluster(step->window.begin),
                       end = ranks[r].clock->ToCluster(step->window.end);
    return MostOf(std::min(end, rank.window.end) - std::max(begin, rank.window.begin), end - begin);
  }
  return false;
}

// The thread with the most marks of this source: other threads mark their own loops.
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

// Threads that serve requests number their steps together, as one sequence. Threads with loops of their own do not.
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
                      steps.cpu_ns[i],
                      steps.others_cpu_ns[i]});
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

// torch.profiler ends the current step when it stops, so a step that had hardly begun, or was given up, looks like a
// whole one. Its contents decide: it must have some length, and as many collectives as the least of the others. The
// first step alone is not enough to compare with, because it may have collectives of its own.
void CutByProfiler(const schema::Collectives& collectives, std::vector<RankStep>& steps) {
  if (steps.size() < 2) return;
  RankStep& last = steps.back();
  std::int64_t shortest = INT64_MAX, fewest = INT64_MAX;
  const auto begun = [&](std::int64_t from, std::int64_t until) {
    return std::ranges::count_if(collectives.begin_ns, [&](std::int64_t at) { return from <= at && at < until; });
  };
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    shortest = std::min(shortest, steps[i].window.end - steps[i].window.begin);
    if (i > 0) fewest = std::min<std::int64_t>(fewest, begun(steps[i].window.begin, steps[i + 1].window.begin));
  }
  if ((last.window.end - last.window.begin) < shortest / rules::kLastStepEmptyTimes) last.complete = false;
  // GPU collectives run behind the host: some launched before may count here as well, but never too few.
  if (steps.size() > 2 && begun(last.window.begin, INT64_MAX) < fewest) last.complete = false;
}

// Takes the steps of each rank from the best source that all ranks with marks have; if they share none, from each one's
// best.
void TakeMarks(const std::vector<MatchRank>& ranks, JobSteps& job) {
  std::set<std::size_t> shared{0, 1, 2, 3, 4};
  for (const MatchRank& rank : ranks) {
    const std::vector<std::uint8_t>& sources = rank.tables->steps.source;
    std::erase_if(shared, [&](std::size_t preference) {
      return !sources.empty() && std::ranges::find(sources, kPreferred[preference]) == sources.end();
    });
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const schema::Steps& steps = ranks[r].tables->steps;
    if (steps.rows() == 0) continue;
    std::uint8_t source = *std::ranges::min_element(steps.source, {}, Preference);
    if (!shared.empty()) source = kPreferred[*shared.begin()];
    std::uint64_t bad = 0;
    job.ranks[r] = Marked(steps, source, bad);
    job.source = static_cast<StepSource::Value>(source);
    job.mismatched += bad;
    if (source == StepSource::kProfilerStep && !ingest::MetaValue(*ranks[r].tables, "imported").empty())
      CutByProfiler(ranks[r].tables->collectives, job.ranks[r]);
    if (bad > 0)
      job.losses.push_back(MakeLoss(ranks[r].rank, Loss::kStepMismatch, bad, "step numbers that do not grow"));
  }
}

// The rank has steps and should have this one but does not, and nothing that was cut explains it.
bool Lacks(std::size_t r, std::int64_t index, const std::vector<MatchRank>& ranks,
           const std::vector<std::vector<RankStep>>& all) {
  const MatchRank& rank = ranks[r];
  const std::vector<RankStep>& steps = all[r];
  if (steps.empty() || FindStep(steps, index) != nullptr) return false;
  if (rank.in_parts && !InSomeWindow(rank, index)) return false;
  const bool beyond = (rank.cut_begin && index < steps.front().index) || (rank.cut_end && index > steps.back().index);
  // Profilers may start a step later on one rank than on another, so other numbers at the same time do not belong to
  // another part of the run.
  return !beyond || (!ingest::MetaValue(*rank.tables, "imported").empty() && CoveredByOthers(rank, ranks, all, index));
}

// Finds which steps are complete on every rank that has steps at all, and which are missing somewhere without a reason.
void CompareSteps(const std::vector<MatchRank>& ranks, JobSteps& job) {
  std::map<std::int64_t, std::size_t> complete;
  std::size_t with_steps = 0;
  for (const auto& steps : job.ranks) {
    with_steps += !steps.empty();
    for (const RankStep& step : steps) complete[step.index] += step.complete;
  }
  std::uint64_t mismatched = 0;
  std::string first;
  for (const auto& [index, count] : complete) {
    if (count == with_steps) job.common.push_back(index);
    if (count == with_steps || count == 0) continue;  // 0: cut short everywhere.
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (!Lacks(r, index, ranks, job.ranks)) continue;
      if (mismatched++ == 0)
        first = "first: step " + std::to_string(index) + " is not on rank " + std::to_string(ranks[r].rank);
      break;
    }
  }
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (with_steps > 0 && job.ranks[r].empty() && !ranks[r].cut_end && !ranks[r].cut_begin)
      job.losses.push_back(
          MakeLoss(ranks[r].rank, Loss::kStepMismatch, complete.size(), "no steps marked on this rank"));
  if (mismatched > 0) job.losses.push_back(MakeLoss(-1, Loss::kStepMismatch, mismatched, first));
  job.mismatched += mismatched;
}

}  // namespace

const RankStep* FindStep(const std::vector<RankStep>& steps, std::int64_t index) {
  const auto at = std::ranges::lower_bound(steps, index, {}, &RankStep::index);
  return at != steps.end() && at->index == index ? &*at : nullptr;
}

JobSteps FindSteps(const std::vector<MatchRank>& ranks, const MatchedCollectives& matched) {
  JobSteps job;
  job.ranks.resize(ranks.size());
  if (std::ranges::any_of(ranks, [](const MatchRank& rank) { return rank.tables->steps.rows() > 0; })) {
    TakeMarks(ranks, job);
  } else {
    FoundSteps found = StepsFromSignature(ranks, matched);
    job.ranks = std::move(found.ranks);
    job.times = found.times;
    job.source = StepSource::kSignature;
    if (std::ranges::all_of(job.ranks, [](const auto& steps) { return steps.empty(); })) {
      job.losses.push_back(MakeLoss(-1, Loss::kStepsUnmarked, 1, ""));
      return job;
    }
  }
  CompareSteps(ranks, job);
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (const auto cut = std::ranges::count(job.ranks[r], false, &RankStep::complete); cut > 0)
      job.losses.push_back(MakeLoss(ranks[r].rank, Loss::kStepIncomplete, static_cast<std::uint64_t>(cut), ""));
  return job;
}

}  // namespace lockstep::merge
