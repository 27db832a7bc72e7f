// Makes the graph (graph.h) of a GPU run: each rank's part (gpu_rank_graph.h), and the durations of collectives and
// messages.

#include <algorithm>
#include <map>
#include <utility>

#include "analysis/replay/gpu/gpu_interference.h"
#include "analysis/replay/gpu/gpu_rank_graph.h"
#include "analysis/replay/gpu/gpu_run.h"
#include "analysis/rules/replay.h"

namespace lockstep::replay {
namespace {

// Sets each member's transfer: from the latest arrival to its end.
void SetTransfers(GraphInMaking& s) {
  for (std::uint32_t c = 0; c < s.members.size(); ++c) {
    std::int64_t all_ns = INT64_MIN;
    for (const GraphInMaking::Member& member : s.members[c]) all_ns = std::max(all_ns, member.arrival_ns);
    const std::int64_t fixed = s.run.collectives[c].transfer_ns;
    for (const GraphInMaking::Member& member : s.members[c]) {
      std::int64_t took = fixed;
      if (fixed < 0) {
        took = std::max<std::int64_t>(0, member.end_ns - all_ns);
        if (s.alone != nullptr) took = s.alone->Transfer(c, {all_ns, all_ns + took});
      }
      s.job.graph.operations()[member.operation].duration_ns = took;
    }
  }
}

// A receive moves data when its send has begun; a send waits for the receive unless the run shows that it does not.
void SetExchanges(GraphInMaking& s) {
  std::map<std::uint32_t, std::vector<std::size_t>> by_collective;
  for (std::size_t i = 0; i < s.exchanges.size(); ++i)
    for (const auto& [collective, send] : s.exchanges[i].messages) by_collective[collective].push_back(i);
  const auto sends = [&](std::size_t i, std::uint32_t collective) {
    for (const auto& [c, send] : s.exchanges[i].messages)
      if (c == collective && send) return true;
    return false;
  };
  bool eager = false;
  for (const auto& [collective, ends] : by_collective) {
    if (ends.size() != 2) continue;
    const std::size_t send = sends(ends[0], collective) ? ends[0] : ends[1], receive = ends[0] + ends[1] - send;
    eager |= s.exchanges[send].end_ns + rules::kGpuEagerSlackNs < s.exchanges[receive].begin_ns;
  }
  for (std::size_t i = 0; i < s.exchanges.size(); ++i) {
    const GraphInMaking::Exchange& exchange = s.exchanges[i];
    std::int64_t begin = exchange.begin_ns;
    for (const auto& [collective, send] : exchange.messages) {
      const auto& ends = by_collective.at(collective);
      if (ends.size() != 2 || (send && eager)) continue;
      const std::size_t other = ends[0] == i ? ends[1] : ends[0];
      if (other == i) continue;
      s.job.graph.Needs(exchange.body, s.exchanges[other].gate);
      begin = std::max(begin, s.exchanges[other].begin_ns);
    }
    s.job.graph.operations()[exchange.body].duration_ns = std::max<std::int64_t>(0, exchange.end_ns - begin);
  }
}

}  // namespace

Job GpuRun::MakeJob(const JobOptions& options) const {
  std::unique_ptr<const GpuAlone> alone;
  if (options.interference.any()) alone = std::make_unique<GpuAlone>(*this, options.interference);
  GraphInMaking shared{*this, options, alone.get(), {}, {}, {}, {}, false};
  std::size_t items = 0;
  for (const GpuRank& rank : gpu_ranks) items += rank.items.size();
  shared.single_kernels = options.interference.any() && items <= rules::kGpuSingleKernelsMost;
  shared.groups.assign(collectives.size(), kNone);
  shared.members.resize(collectives.size());
  shared.job.step_ends.assign(steps.size(), std::vector<std::uint32_t>(ranks.size(), kNone));
  std::int64_t origin = INT64_MAX;
  for (const GpuRank& rank : gpu_ranks) origin = std::min(origin, rank.origin_ns);
  for (std::uint32_t r = 0; r < gpu_ranks.size(); ++r) AddRank(shared, r, origin);
  SetTransfers(shared);
  SetExchanges(shared);
  return std::move(shared.job);
}

}  // namespace lockstep::replay
