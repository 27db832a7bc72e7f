#include "analysis/replayed/replay_price.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "analysis/core/statistics.h"
#include "analysis/replayed/replayed_run.h"
#include "merge/parallel.h"
#include "merge/timeline/rank_activity.h"

namespace lockstep::analysis {
namespace {

constexpr std::int64_t kSameTimeNs = 20'000;
constexpr std::size_t kMostRanks = 64;

// Cluster time at which the replay's time is 0.
std::optional<std::int64_t> Origin(const Context& context, const ReplayedRun& replayed) {
  const auto& cells = context.tables().step_ranks;
  std::map<std::pair<std::int64_t, std::int32_t>, std::int64_t> ends;
  for (std::size_t i = 0; i < cells.rows(); ++i) ends[{cells.index[i], cells.rank[i]}] = cells.cluster_end_ns[i];
  const replay::RecordedRun& run = replayed.run();
  std::vector<std::int64_t> offsets;
  for (std::size_t s = 0; s < run.steps.size(); ++s)
    for (std::size_t r = 0; r < run.ranks.size(); ++r) {
      const auto end = ends.find({run.steps[s], run.ranks[r]});
      if (end == ends.end()) return std::nullopt;
      offsets.push_back(end->second - replayed.schedule().end_ns[replayed.job().step_ends[s][r]]);
    }
  if (offsets.empty()) return std::nullopt;
  const auto [low, high] = std::minmax_element(offsets.begin(), offsets.end());
  if (*high - *low > kSameTimeNs) return std::nullopt;
  return LowerMedian(std::move(offsets));
}

IntervalSet RangesOf(const Context& context, std::int32_t rank, std::uint8_t category) {
  const auto tables = context.ReadActivity(rank);
  if (!tables.ok()) return {};
  const schema::RankTables& t = tables.value();
  const merge::ClockMap clock(context.tables().clock, rank);
  std::vector<bool> training(t.threads.rows() + 1, false);
  for (std::size_t i = 0; i < t.threads.rows(); ++i)
    if (t.threads.thread[i] < training.size()) training[t.threads.thread[i]] = t.threads.training[i] != 0;
  std::vector<Interval> intervals;
  for (std::size_t i = 0; i < t.ranges.rows(); ++i)
    if (t.ranges.category[i] == category && t.ranges.thread[i] < training.size() && training[t.ranges.thread[i]])
      intervals.push_back(
          {clock.ToCluster(t.ranges.begin_ns[i]), clock.ToCluster(t.ranges.begin_ns[i] + t.ranges.duration_ns[i])});
  return Normalize(std::move(intervals));
}

std::optional<ReplayPrice> GainOf(const Context& context, const std::optional<replay::Question>& question) {
  const ReplayedRun* replayed = context.Replayed();
  if (!question || replayed == nullptr) return std::nullopt;
  const Result<replay::Answer> answer = replayed->what_if().Ask(*question);
  if (!answer.ok()) return std::nullopt;
  return ReplayPrice{answer.value().gain_ns, answer.value().gain_interval_ns,
                     static_cast<std::int64_t>(answer.value().step_lengths_ns.size())};
}

// Of a step, by rank (index in RecordedRun::ranks): the time that each has in ranges. -> how much of its own it loses.
using CutOf = std::function<std::int64_t(const std::vector<std::int64_t>& of_step, std::size_t rank)>;

std::optional<replay::Question> CutRanges(const Context& context, std::uint8_t category, const CutOf& cut_of) {
  for (std::size_t p = 0; p < context.ranks().size(); ++p)
    if (context.tables().ranks.gpu[context.RankRow(p)]) return std::nullopt;
  if (context.ranks().size() > kMostRanks) return std::nullopt;
  const ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr || !replayed->Holds()) return std::nullopt;
  const auto origin = Origin(context, *replayed);
  if (!origin) return std::nullopt;
  const replay::RecordedRun& run = replayed->run();
  std::vector<IntervalSet> without(run.ranks.size());
  merge::ParallelFor(context.options().jobs, run.ranks.size(),
                     [&](std::size_t r) { without[r] = RangesOf(context, run.ranks[r], category); });

  // By operation, and in all of each rank and step.
  const replay::Job& job = replayed->job();
  const replay::Schedule& as_it_was = replayed->schedule();
  std::vector<std::int64_t> cut(job.operations.size(), 0);
  std::vector<std::vector<std::int64_t>> of_step(run.steps.size(), std::vector<std::int64_t>(run.ranks.size(), 0));
  for (std::size_t i = 0; i < job.operations.size(); ++i) {
    const replay::JobOperation& about = job.operations[i];
    if (about.role != replay::Role::kWork || about.rank >= without.size() || about.step >= of_step.size()) continue;
    const Interval at{as_it_was.begin_ns[i] + *origin, as_it_was.end_ns[i] + *origin};
    if (at.begin >= at.end) continue;
    cut[i] = TotalWithin(without[about.rank], at);
    of_step[about.step][about.rank] += cut[i];
  }
  for (std::size_t i = 0; i < cut.size(); ++i) {
    if (cut[i] == 0) continue;
    const std::vector<std::int64_t>& ranks = of_step[job.operations[i].step];
    const std::int64_t own = ranks[job.operations[i].rank], loses = cut_of(ranks, job.operations[i].rank);
    if (loses < own)
      cut[i] = std::llround(static_cast<double>(cut[i]) * static_cast<double>(loses) / static_cast<double>(own));
  }
  replay::Question question{.kind = replay::Question::kEdit};
  question.edit = [cut = std::move(cut)](replay::Job& changed) {
    std::vector<replay::Operation>& operations = changed.graph.operations();
    for (std::size_t i = 0; i < std::min(cut.size(), operations.size()); ++i)
      operations[i].duration_ns = std::max<std::int64_t>(0, operations[i].duration_ns - cut[i]);
  };
  return question;
}

// The call returns at once: it needs nothing but its thread.
void ReturnAtOnce(replay::Job& job) {
  const auto syncs = [&](std::uint32_t operation) { return job.operations[operation].role == replay::Role::kSync; };
  std::vector<replay::Operation>& operations = job.graph.operations();
  for (std::uint32_t i = 0; i < operations.size(); ++i)
    if (syncs(i)) operations[i].duration_ns = operations[i].delay_ns = 0;
  job.graph.RemoveNeedsIf([&](const replay::Graph::Need& need) { return syncs(need.operation); });
}

}  // namespace

std::optional<replay::Question> WithoutRanges(const Context& context, std::uint8_t category) {
  return CutRanges(context, category, [](const std::vector<std::int64_t>& of_step, std::size_t rank) {
    return std::min(of_step[rank], LowerMedian(of_step));
  });
}

std::optional<replay::Question> WithoutMoreInput(const Context& context, const std::vector<std::int32_t>& ranks) {
  const ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr) return std::nullopt;
  std::vector<bool> late(replayed->run().ranks.size(), false);
  for (const std::int32_t rank : ranks)
    if (const std::uint32_t r = replayed->run().PositionOf(rank); r != replay::kNone) late[r] = true;
  return CutRanges(context, schema::Category::kInput, [&](const std::vector<std::int64_t>& of_step, std::size_t rank) {
    std::vector<std::int64_t> others;
    for (std::size_t r = 0; r < of_step.size(); ++r)
      if (!late[r]) others.push_back(of_step[r]);
    if (!late[rank] || others.empty()) return std::int64_t{0};
    return std::max<std::int64_t>(0, of_step[rank] - LowerMedian(std::move(others)));
  });
}

std::optional<replay::Question> WithoutSyncs(const Context& context) {
  const ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr || !replayed->Holds()) return std::nullopt;
  const auto& operations = replayed->job().operations;
  if (std::none_of(operations.begin(), operations.end(),
                   [](const replay::JobOperation& about) { return about.role == replay::Role::kSync; }))
    return std::nullopt;
  replay::Question question{.kind = replay::Question::kEdit};
  question.edit = ReturnAtOnce;
  return question;
}

std::optional<ReplayPrice> PriceWithoutRanges(const Context& context, std::uint8_t category) {
  return GainOf(context, WithoutRanges(context, category));
}

std::optional<ReplayPrice> PriceWithoutSyncs(const Context& context) { return GainOf(context, WithoutSyncs(context)); }

}  // namespace lockstep::analysis
