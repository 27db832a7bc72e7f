// What a step waits for, one after the other, across ranks: the chain of causes that ends
// with the last of the replayed steps.

#include <algorithm>
#include <map>
#include <numeric>

#include "analysis/passes.h"
#include "analysis/replay/graph/likeness.h"
#include "analysis/replayed/enclosing_range.h"
#include "analysis/replayed/replayed_run.h"
#include "analysis/rules/network.h"

namespace lockstep::analysis {
namespace {

struct Link {
  std::uint32_t operation;
  std::int64_t ns;
};

std::vector<Link> Chain(const replay::Job& job, const replay::Schedule& schedule) {
  const std::uint32_t last = job.LastEnd(schedule);
  std::vector<Link> links;
  if (last == replay::kNone) return links;
  const std::vector<std::uint32_t> chain = CriticalChain(job.graph, schedule, last);
  for (std::size_t k = 1; k < chain.size(); ++k) {
    // What a GPU still does of the step before when its host begins the first one is no part of it.
    const std::uint32_t rank = job.operations[chain[k]].rank;
    const std::int64_t begin_ns = rank < job.starts.size() ? schedule.end_ns[job.starts[rank]] : 0;
    if (const std::int64_t ns = schedule.end_ns[chain[k]] - std::max(begin_ns, schedule.end_ns[chain[k - 1]]); ns > 0)
      links.push_back({chain[k], ns});
  }
  return links;
}

}  // namespace

void FindCriticalPath(const Context& context, Analysis& analysis) {
  const ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr || !replayed->Reproduces() || replayed->run().steps.empty()) return;
  const replay::Job& job = replayed->job();
  const std::vector<Link> chain = Chain(job, replayed->schedule());

  // Names for the ranks that are on it most.
  std::map<std::uint32_t, double> of_rank;
  for (const Link& link : chain)
    if (const std::uint32_t r = job.operations[link.operation].rank; r != replay::kNone)
      of_rank[r] += static_cast<double>(link.ns);
  const EnclosingRanges names(context, *replayed, of_rank);

  std::map<std::pair<std::int32_t, std::string>, std::vector<std::int64_t>> shares;  // [step]
  const std::size_t steps = replayed->run().steps.size();
  for (const Link& link : chain) {
    const replay::JobOperation& about = job.operations[link.operation];
    if (about.rank == replay::kNone || about.step >= steps) continue;
    const replay::WorkKind kind = KindOf(job, link.operation);
    const bool between = kind == replay::WorkKind::kCommunication;
    std::string what;
    if (between)
      what = "transfer";
    else if (kind == replay::WorkKind::kNeither)
      what = "other";
    else
      what = NameOf(kind);
    if (about.role == replay::Role::kWork)
      if (const std::string name = names.Of(link.operation); !name.empty()) what += ": " + name;
    auto& by_step = shares[{between ? -1 : replayed->run().ranks[about.rank], what}];
    by_step.resize(steps, 0);
    by_step[about.step] += link.ns;
  }
  // Means, so that shares sum to the step: of ranks that take turns on the path medians would leave nothing. The first
  // step begins before what is replayed.
  for (const auto& [key, by_step] : shares) {
    const std::size_t from = steps > 1 ? 1 : 0;
    const std::int64_t sum =
        std::accumulate(by_step.begin() + static_cast<std::ptrdiff_t>(from), by_step.end(), std::int64_t{0});
    if (const std::int64_t ns = sum / static_cast<std::int64_t>(steps - from); ns > 0)
      analysis.critical_path.push_back({key.first, key.second, ns});
  }
  std::stable_sort(analysis.critical_path.begin(), analysis.critical_path.end(),
                   [](const CriticalShare& a, const CriticalShare& b) { return a.ns > b.ns; });
  if (analysis.critical_path.size() > rules::kReplayedRows) analysis.critical_path.resize(rules::kReplayedRows);
}

}  // namespace lockstep::analysis
