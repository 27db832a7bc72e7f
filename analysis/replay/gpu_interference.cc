#include "analysis/replay/gpu_interference.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/statistics.h"

namespace lockstep::replay {
namespace {

constexpr std::uint64_t kSeed = 20'261;
constexpr std::size_t kRounds = 400;

}  // namespace

GpuOccupancy::GpuOccupancy(const GpuRun& run) : transfers_(run.collectives.size(), Interval{0, 0}) {
  members_.resize(run.collectives.size());
  const auto each = [&](std::size_t r, auto&& f) {
    const GpuRank& rank = run.gpu_ranks[r];
    for (std::size_t i = 0; i < rank.items.size(); ++i)
      if (rank.gates.empty() || rank.gates.back() != i) f(rank.items[i]);
  };
  std::vector<Interval> arrival_and_end(run.collectives.size(), {INT64_MIN, INT64_MIN});
  for (std::size_t r = 0; r < run.gpu_ranks.size(); ++r) {
    std::vector<Interval> computing;
    each(r, [&](const GpuItem& item) {
      if (item.kind == GpuItem::kKernel) computing.push_back({item.begin_ns, item.end_ns});
      if (item.kind != GpuItem::kMember) return;
      Interval& both = arrival_and_end[item.ref];
      both = {std::max(both.begin, item.begin_ns), std::max(both.end, item.end_ns)};
      members_[item.ref].push_back(static_cast<std::uint32_t>(r));
    });
    computing_.push_back(Normalize(std::move(computing)));
  }
  for (std::size_t c = 0; c < transfers_.size(); ++c)
    if (!members_[c].empty() && arrival_and_end[c].begin < arrival_and_end[c].end) transfers_[c] = arrival_and_end[c];
  for (std::size_t r = 0; r < run.gpu_ranks.size(); ++r) {
    std::vector<Interval> transferring;
    each(r, [&](const GpuItem& item) {
      if (item.kind != GpuItem::kMember) return;
      const std::int64_t begin = arrival_and_end[item.ref].begin;
      if (begin < item.end_ns) transferring.push_back({begin, item.end_ns});
    });
    transferring_.push_back(Normalize(std::move(transferring)));
  }
}

std::vector<std::int64_t> GpuOccupancy::ByComputing(std::uint32_t collective, Interval transfer) const {
  const std::vector<std::uint32_t>& members = members_[collective];
  std::vector<std::int64_t> by_computing(members.size() + 1, 0);
  std::vector<std::pair<std::int64_t, int>> changes;
  for (const std::uint32_t rank : members) {
    const IntervalSet& set = computing_[rank];
    auto at = std::upper_bound(set.begin(), set.end(), transfer.begin,
                               [](std::int64_t ns, const Interval& each) { return ns < each.end; });
    for (; at != set.end() && at->begin < transfer.end; ++at) {
      changes.emplace_back(std::max(at->begin, transfer.begin), 1);
      changes.emplace_back(std::min(at->end, transfer.end), -1);
    }
  }
  std::sort(changes.begin(), changes.end());
  std::int64_t now = transfer.begin;
  int computing = 0;
  for (const auto& [ns, change] : changes) {
    by_computing[static_cast<std::size_t>(computing)] += ns - now;
    now = ns;
    computing += change;
  }
  by_computing[0] += transfer.end - now;
  return by_computing;
}

std::int64_t GpuAlone::Kernel(std::size_t rank, const GpuItem& item) const {
  const std::int64_t length = item.end_ns - item.begin_ns;
  const std::int64_t beside = TotalWithin(occupancy_.transferring(rank), {item.begin_ns, item.end_ns});
  return length - beside + std::llround(static_cast<double>(beside) / (1 + interference_.compute_slowdown));
}

std::int64_t GpuAlone::Transfer(std::uint32_t collective, Interval transfer) const {
  if (transfer.begin >= transfer.end) return 0;
  const std::vector<std::int64_t> by_computing = occupancy_.ByComputing(collective, transfer);
  double alone = 0;
  for (std::size_t k = 0; k < by_computing.size(); ++k)
    alone += static_cast<double>(by_computing[k]) / (1 + interference_.transfer_slowdown * static_cast<double>(k) /
                                                             static_cast<double>(by_computing.size() - 1));
  return std::llround(alone);
}

InterferenceEstimate GpuRun::EstimateInterference() const { return {}; }

}  // namespace lockstep::replay
