// What slow kinds of work and slow ranks cost, as ByteDance's what-if analysis defines it
// (OSDI'25, 3.3 and 4), and which share of that named stragglers have.

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "analysis/passes.h"
#include "analysis/replay/graph/counterfactual.h"
#include "analysis/replay/graph/likeness.h"
#include "analysis/replayed/replayed_run.h"
#include "analysis/rules/network.h"

namespace lockstep::analysis {
namespace {

using replay::Counterfactual;
using replay::Job;

class Counter {
 public:
  Counter(const Context& context, const ReplayedRun& replayed, Analysis& analysis)
      : context_(context), replayed_(replayed), analysis_(analysis), job_(replayed.job()) {}

  void Run() {
    Counterfactual counter(job_.graph, OrdinaryDurations(replayed_.run(), job_),
                           [this](const replay::Schedule& schedule) { return job_.StepLengths(schedule); });
    const Result<double> slowdown = counter.Slowdown();
    if (!slowdown.ok() || !(slowdown.value() > 0)) return;
    CounterfactualResult result;
    result.slowdown = slowdown.value();
    result.self_error = replayed_.what_if().self_error();
    for (const auto kind : {replay::WorkKind::kCompute, replay::WorkKind::kHost, replay::WorkKind::kCommunication}) {
      const Result<Counterfactual::Contribution> of =
          counter.Of([&](std::uint32_t i) { return KindOf(job_, i) == kind; });
      if (of.ok()) result.by_type.emplace_back(std::string(NameOf(kind)), of.value().slowdown);
    }
    const std::vector<std::uint32_t> asked = RanksToAsk();
    std::map<std::uint32_t, Counterfactual::Contribution> of_rank;
    for (const std::uint32_t r : asked) {
      const Result<Counterfactual::Contribution> of = counter.Of([&](std::uint32_t i) { return Belongs(i, r); });
      if (!of.ok()) continue;
      of_rank.emplace(r, of.value());
      result.by_rank.emplace_back(replayed_.run().ranks[r], of.value().slowdown);
    }
    result.ranks_sampled = asked.size() < replayed_.run().ranks.size();
    std::sort(result.by_rank.begin(), result.by_rank.end());
    // Of a waste of nothing nobody has a share.
    if (result.slowdown - 1 >= rules::kCounterfactualWaste) Groups(counter, result);
    for (Straggler& straggler : analysis_.stragglers) Share(counter, of_rank, straggler);
    analysis_.counterfactual = std::move(result);
  }

 private:
  bool Belongs(std::uint32_t i, std::uint32_t r) const { return job_.operations[i].rank == r; }

  // All, or those that work most beyond what is ordinary: the others' S_w is near 1.
  std::vector<std::uint32_t> RanksToAsk() const {
    std::vector<std::uint32_t> ranks(replayed_.run().ranks.size());
    std::iota(ranks.begin(), ranks.end(), 0u);
    const std::size_t room = replayed_.Plays(2 * rules::kCounterfactualLeastRanks, 2 * rules::kCounterfactualRanks) / 2;
    if (ranks.size() <= room) return ranks;
    std::vector<std::int64_t> beyond(ranks.size(), 0);
    const std::vector<std::int64_t> ordinary = OrdinaryDurations(replayed_.run(), job_);
    for (std::size_t i = 0; i < job_.operations.size(); ++i)
      if (IsOwnWork(job_.operations[i].role))
        beyond[job_.operations[i].rank] += job_.graph.operations()[i].duration_ns - ordinary[i];
    std::stable_sort(ranks.begin(), ranks.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return beyond[a] > beyond[b]; });
    std::vector<bool> named(beyond.size(), false);
    for (const Straggler& straggler : analysis_.stragglers)
      if (const std::uint32_t r = replayed_.run().PositionOf(straggler.rank); r != replay::kNone) named[r] = true;
    std::stable_partition(ranks.begin(), ranks.end(), [&](std::uint32_t r) { return named[r]; });
    ranks.resize(room);
    return ranks;
  }

  // M_W and M_S.
  void Groups(Counterfactual& counter, CounterfactualResult& result) const {
    const std::size_t n = replayed_.run().ranks.size();
    std::vector<std::pair<std::int32_t, double>> worst = result.by_rank;
    std::stable_sort(worst.begin(), worst.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    const auto count = static_cast<std::size_t>(std::ceil(rules::kCounterfactualWorstShare * static_cast<double>(n)));
    worst.resize(std::min(worst.size(), std::max<std::size_t>(1, count)));
    std::vector<bool> chosen(n, false);
    for (const auto& [rank, slowdown] : worst) chosen[replayed_.run().PositionOf(rank)] = true;
    const auto removed = [&](const std::vector<bool>& ranks) -> std::optional<double> {
      const Result<Counterfactual::Contribution> of = counter.Of([&](std::uint32_t i) {
        const std::uint32_t r = job_.operations[i].rank;
        return r < ranks.size() && ranks[r];
      });
      if (!of.ok() || !std::isfinite(of.value().removed)) return std::nullopt;
      return of.value().removed;
    };
    if (!worst.empty()) result.worst_ranks = removed(chosen);
    const std::vector<bool> last = LastStage(context_, replayed_.run().ranks);
    if (!last.empty()) result.last_stage = removed(last);
  }

  // Ranks of the last pipeline stage: messages lead from each to the next, forward and back, and none beyond.
  static std::vector<bool> LastStage(const Context& context, const std::vector<std::int32_t>& ranks);

  void Share(Counterfactual& counter, const std::map<std::uint32_t, Counterfactual::Contribution>& known,
             Straggler& straggler) const {
    const std::uint32_t r = replayed_.run().PositionOf(straggler.rank);
    if (r == replay::kNone) return;
    const auto at = known.find(r);
    if (at != known.end()) return Fill(at->second, straggler);
    const Result<Counterfactual::Contribution> of = counter.Of([&](std::uint32_t i) { return Belongs(i, r); });
    if (of.ok()) Fill(of.value(), straggler);
  }
  static void Fill(const Counterfactual::Contribution& of, Straggler& straggler) {
    if (!std::isfinite(of.removed)) return;
    straggler.removed = of.removed;
    straggler.added = of.added;
  }

  const Context& context_;
  const ReplayedRun& replayed_;
  Analysis& analysis_;
  Job job_;
};

// Stages are told by who sends to whom: in a pipeline the ranks fall into sets of which each exchanges messages with
// the one before and the one behind it, always by the same distance of rank numbers.
std::vector<bool> Counter::LastStage(const Context& context, const std::vector<std::int32_t>& ranks) {
  const auto& pairs = context.tables().p2p_pairs;
  std::int64_t distance = 0;
  for (std::size_t i = 0; i < pairs.rows(); ++i) {
    if (pairs.messages[i] == 0) continue;
    const std::int64_t d = std::abs(static_cast<std::int64_t>(pairs.destination_rank[i]) - pairs.source_rank[i]);
    // One distance for all, or it is no pipeline of this kind; a ring wraps around.
    if (d == 0 || (distance != 0 && d != distance)) return {};
    distance = d;
  }
  const std::int64_t n = static_cast<std::int64_t>(ranks.size());
  if (distance == 0 || n % distance != 0 || n / distance < 2) return {};
  std::vector<bool> sends(ranks.size(), false);  // To the stage behind.
  std::vector<bool> back(ranks.size(), false);
  for (std::size_t i = 0; i < pairs.rows(); ++i) {
    if (pairs.messages[i] == 0) continue;
    const auto at = std::lower_bound(ranks.begin(), ranks.end(), pairs.source_rank[i]);
    if (at == ranks.end() || *at != pairs.source_rank[i]) return {};
    (pairs.destination_rank[i] > pairs.source_rank[i] ? sends : back)[static_cast<std::size_t>(at - ranks.begin())] =
        true;
  }
  std::vector<bool> last(ranks.size(), false);
  for (std::int64_t r = 0; r < n; ++r) {
    last[static_cast<std::size_t>(r)] = r >= n - distance;
    // Forward from all but the last stage, back from all but the first: neighbours in a halo exchange look the same
    // only if they do not wrap around, and then the last ones are an end, too.
    if (sends[static_cast<std::size_t>(r)] != (r < n - distance)) return {};
    if (back[static_cast<std::size_t>(r)] != (r >= distance)) return {};
  }
  return last;
}

}  // namespace

void CountCounterfactuals(const Context& context, Analysis& analysis) {
  const ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr || !replayed->Reproduces() || replayed->run().ranks.size() < 2) return;
  // All of a run without steps may be so much that even few ranks cannot be asked.
  if (replayed->run().whole_window &&
      replayed->Plays(0, 2 * rules::kCounterfactualLeastRanks) < 2 * rules::kCounterfactualLeastRanks)
    return;
  Counter(context, *replayed, analysis).Run();
}

}  // namespace lockstep::analysis
