#include "analysis/replayed/replay_price.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "analysis/core/statistics.h"
#include "analysis/replayed/replayed_run.h"
#include "analysis/rules/network.h"
#include "core/rules/common.h"
#include "merge/parallel.h"
#include "merge/timeline/rank_activity.h"

namespace lockstep::analysis {
namespace {

// Where ranges lie in the replayed steps.
struct Origin {
  // [step][rank]: cluster time at which the replay's time of that step would be 0, if its end is the same.
  std::vector<std::vector<std::int64_t>> of_end_ns;
  bool same = false;               // Wherever one looks: the replay is as long as what was recorded, step by step.
  std::vector<Interval> recorded;  // [rank]: from the end of the first replayed step to that of the last, cluster time.

  // Of what happens in a step: by the end of the step before, so that what it begins with lies where it was.
  std::int64_t At(const replay::RecordedRun& run, std::size_t step, std::size_t rank) const {
    const bool follows = step > 0 && run.steps[step] == run.steps[step - 1] + 1;
    return of_end_ns[follows ? step - 1 : step][rank];
  }
};

std::optional<Origin> OriginOf(const Context& context, const ReplayedRun& replayed) {
  const auto& cells = context.tables().step_ranks;
  std::map<std::pair<std::int64_t, std::int32_t>, std::int64_t> ends;
  for (std::size_t i = 0; i < cells.rows(); ++i) ends[{cells.index[i], cells.rank[i]}] = cells.cluster_end_ns[i];
  const replay::RecordedRun& run = replayed.run();
  Origin origin;
  origin.recorded.resize(run.ranks.size(), {INT64_MAX, INT64_MIN});
  std::int64_t low = INT64_MAX, high = INT64_MIN;
  for (std::size_t s = 0; s < run.steps.size(); ++s) {
    origin.of_end_ns.emplace_back();
    for (std::size_t r = 0; r < run.ranks.size(); ++r) {
      const auto end = ends.find({run.steps[s], run.ranks[r]});
      if (end == ends.end()) return std::nullopt;
      const std::int64_t offset = end->second - replayed.schedule().end_ns[replayed.job().step_ends[s][r]];
      origin.of_end_ns.back().push_back(offset);
      low = std::min(low, offset);
      high = std::max(high, offset);
      origin.recorded[r] = {std::min(origin.recorded[r].begin, end->second),
                            std::max(origin.recorded[r].end, end->second)};
    }
  }
  if (low > high) return std::nullopt;
  origin.same = high - low <= rules::kPriceSameTimeNs;
  return origin;
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
  if (context.ranks().size() > rules::kPriceRanks) return std::nullopt;
  const ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr || !replayed->HoldsInSteps()) return std::nullopt;
  const auto origin = OriginOf(context, *replayed);
  if (!origin) return std::nullopt;
  const replay::RecordedRun& run = replayed->run();
  std::vector<IntervalSet> without(run.ranks.size());
  merge::ParallelFor(context.options().jobs, run.ranks.size(),
                     [&](std::size_t r) { without[r] = RangesOf(context, run.ranks[r], category); });

  // By operation, and in all of each rank and step.
  const replay::Job& job = replayed->job();
  const replay::Schedule& as_it_was = replayed->schedule();
  std::vector<std::int64_t> cut(job.operations.size(), 0);
  std::int64_t found_ns = 0, there_ns = 0;
  std::vector<std::vector<std::int64_t>> of_step(run.steps.size(), std::vector<std::int64_t>(run.ranks.size(), 0));
  for (std::size_t i = 0; i < job.operations.size(); ++i) {
    const replay::JobOperation& about = job.operations[i];
    if (about.role != replay::Role::kWork || about.rank >= without.size() || about.step >= of_step.size()) continue;
    const std::int64_t zero_ns = origin->At(run, about.step, about.rank);
    const Interval at{as_it_was.begin_ns[i] + zero_ns, as_it_was.end_ns[i] + zero_ns};
    if (at.begin >= at.end) continue;
    cut[i] = TotalWithin(without[about.rank], at);
    of_step[about.step][about.rank] += cut[i];
    if (about.step > 0) found_ns += cut[i];
  }
  for (std::size_t r = 0; r < without.size(); ++r) there_ns += TotalWithin(without[r], origin->recorded[r]);
  if (!origin->same && !NearlyAllOf(found_ns, there_ns)) return std::nullopt;
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
  if (replayed == nullptr || !replayed->HoldsInSteps()) return std::nullopt;
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
