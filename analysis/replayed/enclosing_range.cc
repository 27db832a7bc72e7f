#include "analysis/replayed/enclosing_range.h"

#include <algorithm>
#include <array>

#include "analysis/core/step_names.h"
#include "analysis/rules/network.h"
#include "merge/timeline/rank_pass.h"
#include "trace/file/strings.h"

namespace lockstep::analysis {
namespace {

constexpr std::array<std::string_view, 7> kCategories{"",          "input",         "forward",   "backward",
                                                      "optimizer", "communication", "checkpoint"};

}  // namespace

EnclosingRanges::EnclosingRanges(const Context& context, const ReplayedRun& replayed,
                                 const std::map<std::uint32_t, double>& of_rank)
    : replayed_(replayed) {
  std::vector<std::uint32_t> ranks;
  for (const auto& [rank, ns] : of_rank) ranks.push_back(rank);
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return of_rank.at(a) > of_rank.at(b); });
  ranks.resize(std::min(ranks.size(), rules::kReplayedRanksNamed));
  const replay::RecordedRun& run = replayed.run();
  std::map<std::int32_t, std::uint32_t> position_of;
  for (const std::uint32_t r : ranks)
    if (r < run.ranks.size()) position_of[run.ranks[r]] = r;
  const auto& cells = context.tables().step_ranks;
  for (std::size_t i = 0; i < cells.rows(); ++i) {
    const auto at = position_of.find(cells.rank[i]);
    const std::int64_t step = cells.index[i] - run.steps.front();
    if (at == position_of.end() || step < 0 || step >= static_cast<std::int64_t>(run.steps.size())) continue;
    auto& ends = step_ends_ns_[at->second];
    ends.resize(run.steps.size(), 0);
    ends[static_cast<std::size_t>(step)] = cells.end_ns[i];
  }
  for (const auto& [rank, position] : position_of) {
    const Result<schema::RankTables> tables = context.ReadRank(rank);
    if (!tables.ok()) continue;
    const auto& t = tables.value();
    const std::uint32_t training = merge::TrainingThread(t);
    auto& list = ranges_[position];
    for (std::size_t i = 0; i < t.ranges.rows(); ++i) {
      if (t.ranges.thread[i] != training || t.ranges.kind[i] != schema::RangeKind::kPushPop ||
          t.ranges.duration_ns[i] < 0)
        continue;
      std::string name(trace::TextOf(t, t.ranges.name[i]));
      if (IsProfilerStep(name)) continue;  // The step itself.
      if (name.empty() && t.ranges.category[i] < kCategories.size()) name = kCategories[t.ranges.category[i]];
      list.push_back({t.ranges.begin_ns[i], t.ranges.begin_ns[i] + t.ranges.duration_ns[i], std::move(name)});
    }
    std::stable_sort(list.begin(), list.end(), [](const Range& a, const Range& b) { return a.begin_ns < b.begin_ns; });
  }
}

std::string EnclosingRanges::Of(std::uint32_t operation) const {
  const replay::JobOperation& about = replayed_.job().operations[operation];
  const auto ranges = ranges_.find(about.rank);
  const auto ends = step_ends_ns_.find(about.rank);
  if (ranges == ranges_.end() || ends == step_ends_ns_.end() || about.step >= ends->second.size()) return {};
  const std::uint32_t end = replayed_.job().step_ends[about.step][about.rank];
  if (end == replay::kNone) return {};
  const replay::Schedule& schedule = replayed_.schedule();
  // Where most of it lies that has a name: work is cut by calls, not by ranges.
  std::map<std::string, int> counts;
  const std::int64_t shift = ends->second[about.step] - schedule.end_ns[end];
  const std::int64_t length = schedule.end_ns[operation] - schedule.begin_ns[operation];
  for (int k = 0; k < rules::kReplayedNameSamples; ++k)
    if (const std::string* name = At(ranges->second, shift + schedule.begin_ns[operation] +
                                                         length * (2 * k + 1) / (2 * rules::kReplayedNameSamples)))
      ++counts[*name];
  counts.erase("");
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& x, const auto& y) { return x.second < y.second; });
  return most == counts.end() ? std::string() : most->first;
}

// The last to begin of those that are still open.
const std::string* EnclosingRanges::At(const std::vector<Range>& list, std::int64_t local_ns) {
  auto at = std::upper_bound(list.begin(), list.end(), local_ns,
                             [](std::int64_t ns, const Range& range) { return ns < range.begin_ns; });
  for (std::size_t looked = 0; at != list.begin() && looked < rules::kReplayedRangesLooked; ++looked) {
    --at;
    if (at->end_ns > local_ns) return &at->name;
  }
  return nullptr;
}

}  // namespace lockstep::analysis
