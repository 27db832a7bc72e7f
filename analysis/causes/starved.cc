// Reports training threads that were ready to run and had no core.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/core/format.h"
#include "analysis/passes.h"

namespace lockstep::analysis {
namespace {

// Over the usable steps, or the whole window in runs without steps. By rank; only ranks for which it is known.
struct CoreTime {
  struct OfRank {
    std::int32_t rank = -1;
    std::int64_t without_core_ns = 0, span_ns = 0;
    // The part of without_core_ns that is certainly outside MPI calls. A thread that waits in such a call may spin, and
    // then it loses nothing if it has no core. In GPU runs this is all of it, because the communication of a step is
    // not the communication of its host threads.
    std::int64_t outside_calls_ns = 0;
    std::int64_t cpu_ns = -1;  // -1: unknown.
  };
  std::vector<OfRank> ranks;
  std::int64_t steps = 0;  // The number of steps of these sums; 0: the window.
  // The share of the ranks' time; 0 if nothing is known.
  double share() const { return ShareOf(&OfRank::without_core_ns); }
  double outside_calls_share() const { return ShareOf(&OfRank::outside_calls_ns); }

 private:
  double ShareOf(std::int64_t OfRank::*part_ns) const {
    double part = 0, span = 0;
    for (const OfRank& rank : ranks) {
      part += static_cast<double>(rank.*part_ns);
      span += static_cast<double>(rank.span_ns);
    }
    return span > 0 ? part / span : 0;
  }
};

CoreTime WithoutCore(const Context& context) {
  CoreTime time;
  const auto& usable = context.usable_steps();
  time.steps = static_cast<std::int64_t>(usable.size());
  const auto& cells = context.tables().step_ranks;
  const auto& totals = context.tables().rank_totals;
  const auto add = [](const auto& t, std::size_t i, std::int64_t span_ns, bool gpu, CoreTime::OfRank& sum) {
    const std::int64_t calls =
        gpu ? 0 : t.exposed_wait_ns[i] + t.exposed_transfer_ns[i] + t.exposed_unsplit_ns[i] + t.mpi_other_ns[i];
    sum.without_core_ns += t.offcpu_ns[i];
    sum.outside_calls_ns += std::max<std::int64_t>(0, t.offcpu_ns[i] - calls);
    sum.span_ns += span_ns;
    sum.cpu_ns = t.cpu_ns[i] < 0 ? -1 : std::max<std::int64_t>(0, sum.cpu_ns) + t.cpu_ns[i];
  };
  for (std::size_t p = 0; p < context.ranks().size() && !usable.empty(); ++p) {
    CoreTime::OfRank sum{.rank = context.ranks()[p]};
    const bool gpu = context.tables().ranks.gpu[context.RankRow(p)] != 0;
    for (const std::size_t step : usable)
      if (const std::size_t i = context.Cell(step, p); i != kNowhere && cells.offcpu_ns[i] >= 0)
        add(cells, i, cells.end_ns[i] - cells.begin_ns[i], gpu, sum);
    if (sum.span_ns > 0) time.ranks.push_back(sum);
  }
  for (std::size_t i = 0; i < totals.rows() && usable.empty(); ++i) {
    if (totals.offcpu_ns[i] < 0) continue;
    CoreTime::OfRank sum{.rank = totals.rank[i]};
    const std::size_t p = context.Position(totals.rank[i]);
    add(totals, i, SpanOf(totals, i), p != kNowhere && context.tables().ranks.gpu[context.RankRow(p)] != 0, sum);
    if (sum.span_ns > 0) time.ranks.push_back(sum);
  }
  return time;
}

}  // namespace

void FindStarved(const Context& context, Analysis& analysis) {
  const RunFacts& run = analysis.run;
  const CoreTime time = WithoutCore(context);
  const double share = time.share(), outside = time.outside_calls_share();
  if (share < kNameShare) return;
  analysis.without_core_share = {outside, share};
  Finding finding;
  finding.id = FindingId::kStarved;
  // The headline and the rows show one quantity: sums over the same steps of the same ranks.
  const std::string when = fmt::format("for {} of their time", Percent(share));
  finding.headline = run.ranks_sharing_cores > 0
                         ? fmt::format("{} ranks share {}: their training threads wait for a core {}.",
                                       run.ranks_sharing_cores, Plural(run.shared_cores, "core"), when)
                         : fmt::format("The training threads are ready to run but have no core {}.", when);
  finding.brief = "ready to run, but without a core";
  // It has no price, because part of that time is within waits that would be spent anyway.
  finding.confidence = 0.7;
  finding.explain.columns = {"rank", "offcpu_ns", "outside_calls_ns", "cpu_ns", "span_ns"};
  const CoreTime::OfRank* most = nullptr;
  const auto of = [](const CoreTime::OfRank& rank) {
    return static_cast<double>(rank.without_core_ns) / static_cast<double>(rank.span_ns);
  };
  for (const CoreTime::OfRank& rank : time.ranks) {
    finding.explain.rows.push_back(
        {rank.rank, rank.without_core_ns, rank.outside_calls_ns, Evidence::OrUnknown(rank.cpu_ns), rank.span_ns});
    if (most == nullptr || of(rank) > of(*most)) most = &rank;
  }
  const std::string where =
      outside < share
          ? fmt::format(", at least {} outside MPI calls, in which a rank that waits may spin", Percent(outside))
          : std::string();
  finding.evidence =
      fmt::format("runnable without a core (run-queue delay) over {}: {} of the time of {}{}; most on rank {}: {}",
                  time.steps > 0 ? Plural(time.steps, "step") : std::string("the window"), Percent(share),
                  Plural(static_cast<std::int64_t>(time.ranks.size()), "rank"), where, most->rank, Percent(of(*most)));
  finding.action =
      run.ranks_sharing_cores > 0
          ? "use as many ranks as cores; the timings of this run do not apply to a run with a core per rank"
          : "see what else runs on the nodes, or widen the ranks' core sets (taskset -cp PID shows them)";
  analysis.findings.push_back(std::move(finding));
}

}  // namespace lockstep::analysis
