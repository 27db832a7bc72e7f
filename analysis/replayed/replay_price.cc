#include "analysis/replayed/replay_price.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "analysis/core/statistics.h"
#include "analysis/replayed/replayed_run.h"
#include "merge/parallel.h"
#include "merge/timeline/rank_activity.h"

namespace lockstep::analysis {
namespace {

// A replay with nothing changed that is further off says nothing about a change.
constexpr double kMostErrorOfReplay = 0.02;
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
  const merge::RankClockMap clock(context.tables().clock, rank);
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

std::optional<ReplayPrice> Compare(const Context& context, const ReplayedRun& replayed, const replay::Job& changed) {
  const auto played = replay::Simulator(changed.graph).Run();
  if (!played.ok()) return std::nullopt;
  const std::vector<std::int64_t> before = replayed.job().StepLengths(replayed.schedule()),
                                  after = changed.StepLengths(played.value());
  std::vector<double> gains;
  std::vector<std::int64_t> whole;
  // The first step's begin is not comparable.
  for (std::size_t s = before.size() > 1 ? 1 : 0; s < before.size() && s < after.size(); ++s) {
    gains.push_back(static_cast<double>(before[s] - after[s]));
    whole.push_back(before[s] - after[s]);
  }
  if (gains.empty()) return std::nullopt;
  ReplayPrice price;
  price.steps = static_cast<std::int64_t>(gains.size());
  price.gain_ns = LowerMedian(std::move(whole));
  const auto [low, high] = BootstrapInterval(gains, BlockLength({gains}), Statistic::kMedian, context.options().seed);
  price.interval = {std::llround(low), std::llround(high)};
  return price;
}

}  // namespace

std::optional<ReplayPrice> PriceWithoutRanges(const Context& context, std::uint8_t category) {
  for (std::size_t p = 0; p < context.ranks().size(); ++p)
    if (context.tables().ranks.gpu[context.RankRow(p)]) return std::nullopt;
  if (context.ranks().size() > kMostRanks) return std::nullopt;
  const ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr || replayed->run().whole_window || replayed->what_if().self_error() > kMostErrorOfReplay)
    return std::nullopt;
  const auto origin = Origin(context, *replayed);
  if (!origin) return std::nullopt;
  const replay::RecordedRun& run = replayed->run();
  std::vector<IntervalSet> without(run.ranks.size());
  merge::ParallelFor(context.options().jobs, run.ranks.size(),
                     [&](std::size_t r) { without[r] = RangesOf(context, run.ranks[r], category); });

  replay::Job job = replayed->job();
  const replay::Schedule& as_it_was = replayed->schedule();
  for (std::size_t i = 0; i < job.operations.size(); ++i) {
    const replay::JobOperation& about = job.operations[i];
    if (about.role != replay::Role::kWork || about.rank >= without.size()) continue;
    const Interval at{as_it_was.begin_ns[i] + *origin, as_it_was.end_ns[i] + *origin};
    std::int64_t& duration = job.graph.operations()[i].duration_ns;
    if (at.begin < at.end) duration = std::max<std::int64_t>(0, duration - TotalWithin(without[about.rank], at));
  }
  return Compare(context, *replayed, job);
}

std::optional<ReplayPrice> PriceWithoutSyncs(const Context& context) {
  const ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr || replayed->run().whole_window || replayed->what_if().self_error() > kMostErrorOfReplay)
    return std::nullopt;
  const replay::Job& job = replayed->job();
  const auto syncs = [&](std::uint32_t operation) { return job.operations[operation].role == replay::Role::kSync; };
  replay::Job changed;
  changed.operations = job.operations;
  changed.starts = job.starts;
  changed.step_ends = job.step_ends;
  for (const bool queued : job.graph.queued_lanes()) changed.graph.AddLane(queued);
  for (std::uint32_t c = 0; c < job.graph.collectives(); ++c) changed.graph.AddCollective();
  bool any = false;
  for (std::uint32_t i = 0; i < job.graph.operations().size(); ++i) {
    replay::Operation operation = job.graph.operations()[i];
    if (syncs(i)) {
      operation.duration_ns = operation.delay_ns = 0;
      any = true;
    }
    changed.graph.Add(operation);
  }
  // The call returns at once: it needs nothing but its thread.
  for (const replay::Graph::Need& need : job.graph.needs())
    if (!syncs(need.operation)) changed.graph.Needs(need.operation, need.earlier, need.lag_ns);
  return any ? Compare(context, *replayed, changed) : std::nullopt;
}

}  // namespace lockstep::analysis
