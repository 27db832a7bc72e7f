#include "analysis/gpu/model_ranges.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/core/step_names.h"
#include "core/rules/common.h"

namespace lockstep::gpu {

ModelRanges::ModelRanges(const RankView& rank, const GpuTimeline& timeline, const RangeNest& nest,
                         const std::vector<Interval>& windows) {
  constexpr std::uint32_t kNone = schema::kNone;
  const schema::Ranges& ranges = rank.tables.ranges;
  const schema::Api& api = rank.tables.api;
  std::uint32_t training = kNone;
  for (std::uint32_t row = 0; row < rank.tables.threads.rows() && training == kNone; ++row)
    if (rank.tables.threads.training[row]) training = rank.tables.threads.thread[row];

  struct Named {
    std::int64_t launches = 0;
    std::uint32_t last_launch = kNone;  // That was counted: names recur among the ranges around one.
    std::vector<Interval> at;
  };
  std::vector<bool> launched(api.rows(), false);
  for (const GpuOp& op : timeline.ops)
    if (op.busy && op.api != kNone) launched[op.api] = true;
  // The innermost ranges around each call: of its own thread, and of the training thread.
  const std::vector<std::uint32_t> of_own = nest.At(api.thread, api.begin_ns),
                                   of_training = nest.At(std::vector(api.rows(), training), api.begin_ns);
  std::unordered_map<std::uint32_t, Named> names;
  std::int64_t launches = 0;
  for (std::uint32_t call = 0; call < api.rows(); ++call) {
    if (!launched[call]) continue;
    ++launches;
    for (std::uint32_t range : {of_own[call], of_training[call]}) {
      for (; range != kNone; range = nest.Parent(range)) {
        Named& named = names[ranges.name[range]];
        named.launches += named.last_launch != call;
        named.last_launch = call;
      }
    }
  }
  const auto takes_part = [&](std::uint32_t row) {
    const std::uint8_t source = ranges.source[row];
    return ranges.kind[row] != schema::RangeKind::kMark && source != schema::RangeSource::kCpuOp &&
           source != schema::RangeSource::kSystemCall;
  };
  for (std::uint32_t row = 0; row < ranges.rows(); ++row)
    if (takes_part(row))
      if (const auto named = names.find(ranges.name[row]); named != names.end())
        named->second.at.push_back({ranges.begin_ns[row], ranges.begin_ns[row] + ranges.duration_ns[row]});
  std::unordered_map<std::uint32_t, bool> by_name;
  for (auto& [name, named] : names) {
    const IntervalSet at = Normalize(std::move(named.at));
    std::int64_t covered = 0;
    for (const Interval& window : windows) covered += TotalWithin(at, window);
    by_name[name] = HalfOf(named.launches, launches) || HalfOf(covered, Total(windows));
  }
  encloses_.assign(ranges.rows(), false);
  for (std::uint32_t row = 0; row < ranges.rows(); ++row) {
    if (!takes_part(row)) continue;
    const std::uint8_t category = ranges.category[row];
    const auto named = by_name.find(ranges.name[row]);
    encloses_[row] = category == schema::Category::kForward || category == schema::Category::kBackward ||
                     category == schema::Category::kOptimizer || (named != by_name.end() && named->second) ||
                     analysis::IsProfilerStep(rank.Text(ranges.name[row]));
  }
}

}  // namespace lockstep::gpu
