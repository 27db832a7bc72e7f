#include "analysis/stragglers/kernel_evidence.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/core/statistics.h"
#include "analysis/rules/stragglers.h"
#include "core/interval.h"
#include "core/printed.h"
#include "core/rules/common.h"
#include "merge/timeline/rank_activity.h"

namespace lockstep::analysis {
namespace {

struct KernelCalls {
  std::int64_t ns = 0, count = 0;
};
using ByName = std::map<std::string, KernelCalls, std::less<>>;

std::optional<ByName> KernelsOf(const Context& context, std::size_t position, const std::vector<std::size_t>& steps) {
  const std::int32_t rank = context.ranks()[position];
  std::vector<Interval> windows;
  for (const std::size_t step : steps)
    if (const std::size_t cell = context.Cell(step, position); cell != kNowhere)
      windows.push_back({context.tables().step_ranks.begin_ns[cell], context.tables().step_ranks.end_ns[cell]});
  const IntervalSet counted = Normalize(std::move(windows));
  ByName kernels;
  std::vector<KernelCalls> by_id;
  const auto add = [&](const schema::RankTables& head, const schema::Kernels& rows) {
    by_id.resize(head.strings.rows());
    for (std::size_t i = 0; i < rows.rows(); ++i) {
      if (rows.work[i] != schema::Work::kCompute || rows.name[i] >= by_id.size()) continue;
      const std::int64_t begin = rows.begin_ns[i];
      const auto after = std::upper_bound(counted.begin(), counted.end(), begin,
                                          [](std::int64_t t, const Interval& window) { return t < window.begin; });
      if (after == counted.begin() || begin >= after[-1].end) continue;
      KernelCalls& calls = by_id[rows.name[i]];
      calls.ns += rows.duration_ns[i];
      ++calls.count;
    }
  };
  Result<schema::RankTables> read = context.options().read_rank ? context.options().read_rank(rank)
                                                                : merge::WalkRankKernels(context.timeline(), rank, add);
  if (!read.ok()) return std::nullopt;
  const schema::RankTables& tables = read.value();
  if (context.options().read_rank) add(tables, tables.kernels);
  for (std::size_t id = 0; id < by_id.size(); ++id) {
    if (by_id[id].count == 0) continue;
    const std::size_t offset = tables.strings.offset_bytes[id], length = tables.strings.length_bytes[id];
    const auto& bytes = tables.string_bytes.value;
    if (offset + length > bytes.size()) continue;
    KernelCalls& calls = kernels[std::string(reinterpret_cast<const char*>(bytes.data()) + offset, length)];
    calls.ns += by_id[id].ns;
    calls.count += by_id[id].count;
  }
  return kernels;
}

}  // namespace

std::optional<KernelEvidence> SlowKernelsOf(const Context& context, std::size_t position,
                                            const std::vector<std::size_t>& others,
                                            const std::vector<std::size_t>& steps) {
  const auto own = KernelsOf(context, position, steps);
  if (!own) return std::nullopt;
  std::vector<ByName> peers;
  for (std::size_t i = 0; i < others.size() && peers.size() < rules::kLateRanksCompared; ++i)
    if (auto peer = KernelsOf(context, others[i], steps)) peers.push_back(std::move(*peer));
  if (peers.empty()) return std::nullopt;

  struct Kind {
    std::string_view name;
    double share, slowdown;  // The share of the rank's own kernel time; the logarithm of the slowdown.
    std::int64_t excess_ns;
  };
  std::int64_t all_ns = 0;
  for (const auto& [name, calls] : *own) all_ns += calls.ns;
  std::vector<Kind> kinds;
  for (const auto& [name, calls] : *own) {
    std::vector<double> each;
    for (const ByName& peer : peers)
      if (const auto at = peer.find(name); at != peer.end() && at->second.ns > 0)
        each.push_back(static_cast<double>(at->second.ns) / static_cast<double>(at->second.count));
    const double share = static_cast<double>(calls.ns) / static_cast<double>(std::max<std::int64_t>(all_ns, 1));
    if (each.empty() || calls.ns <= 0 || share < rules::kNameShare) continue;
    const double here = static_cast<double>(calls.ns) / static_cast<double>(calls.count), there = LowerMedian(each);
    kinds.push_back({name, share, std::log(here / there),
                     static_cast<std::int64_t>((here - there) * static_cast<double>(calls.count))});
  }
  if (kinds.size() < 2) return std::nullopt;
  double most = 0;
  for (const Kind& kind : kinds) most = std::max(most, kind.slowdown);
  if (most <= 0) return std::nullopt;
  double fast_share = 0, between = 0;
  std::vector<Kind> slow;
  for (const Kind& kind : kinds) {
    if (kind.slowdown >= rules::kSlowKernelSlowdown * most)
      slow.push_back(kind);
    else
      (kind.slowdown <= rules::kMuch * most ? fast_share : between) += kind.share;
  }
  KernelEvidence evidence;
  evidence.all = slow.size() == kinds.size() && kinds.size() >= rules::kMiddle;
  const bool some = !evidence.all && fast_share >= rules::kSlowKernelFastShare && fast_share > between;
  if (!evidence.all && !some) return std::nullopt;
  std::sort(slow.begin(), slow.end(), [](const Kind& a, const Kind& b) { return a.excess_ns > b.excess_ns; });
  double weight = 0, sum = 0;
  for (const Kind& kind : slow) {
    weight += kind.share;
    sum += kind.share * kind.slowdown;
  }
  evidence.factor = std::exp(sum / weight);
  for (std::size_t i = 0; i < std::min(slow.size(), rules::kSlowKernelNames); ++i)
    evidence.names.emplace_back(BeginOf(slow[i].name, 60));
  evidence.more = slow.size() - evidence.names.size();
  return evidence;
}

}  // namespace lockstep::analysis
