// Reports training threads that were ready to run and had no core.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "analysis/core/source.h"
#include "analysis/core_time.h"
#include "analysis/passes.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

// At least what the processes' other threads used of the CPU: beyond what the ranks' threads used in the window, and
// may have used outside of it; 0 if that is little. -1: not known.
std::int64_t OtherThreadsNs(const Context& context) {
  const auto& t = context.tables();
  std::int64_t begin_ns = INT64_MAX, end_ns = INT64_MIN, others_ns = 0, all_ns = 0;
  for (std::size_t i = 0; i < t.windows.rows(); ++i)
    begin_ns = std::min(begin_ns, t.windows.begin_ns[i]), end_ns = std::max(end_ns, t.windows.end_ns[i]);
  for (std::size_t i = 0; i < t.rank_totals.rows(); ++i) {
    const std::size_t p = context.Position(t.rank_totals.rank[i]);
    if (p == kNowhere) continue;
    const std::int64_t app_ns = t.ranks.app_cpu_ns[context.RankRow(p)], own_ns = t.rank_totals.cpu_ns[i];
    if (app_ns < 0 || own_ns < 0 || end_ns < begin_ns) return -1;
    const std::int64_t outside_ns = std::max<std::int64_t>(0, end_ns - begin_ns - SpanOf(t.rank_totals, i));
    others_ns += std::max<std::int64_t>(0, app_ns - own_ns - outside_ns);
    all_ns += app_ns;
  }
  return !LittleOf(others_ns, all_ns) ? others_ns : 0;
}

}  // namespace

void FindStarved(const Context& context, Analysis& analysis) {
  const RunFacts& run = analysis.run;
  const CoreTime time = WithoutCore(context);
  // Within communication it may have spun, or slept and been woken late: who knows what that costs, if anything. Ranks
  // that share cores take them from each other, whoever spins from whoever computes: there all of it counts.
  const bool sharing = run.ranks_sharing_cores > 0;
  const auto counted = sharing ? &CoreTime::OfRank::without_core_ns : &CoreTime::OfRank::outside_calls_ns;
  const double all = time.share(), share = sharing ? all : time.outside_calls_share();
  if (share < rules::kNameShare) return;
  analysis.without_core_share = share;
  Finding finding;
  finding.id = FindingId::kStarved;
  // The headline and the rows show one quantity: sums over the same steps of the same ranks.
  // Of other programs the thread that calls MPI is meant, which is the rank to them.
  finding.said.headline = {
      Say(sharing ? Word::kStarvedSharing : Word::kStarved, {{"sharing_ranks", Index{run.ranks_sharing_cores}},
                                                             {"cores", Num{run.shared_cores}},
                                                             {"torch", SourceOf(context.timeline()).torch},
                                                             {"without_core", Share{share}}})};
  // It has no price: what a rank lacks while the others compute is not what the step lacks.
  finding.explain.columns = {"rank", "offcpu_ns", "outside_calls_ns", "cpu_ns", "span_ns"};
  const CoreTime::OfRank* most = nullptr;
  const auto of = [&](const CoreTime::OfRank& rank) {
    return static_cast<double>(rank.*counted) / static_cast<double>(rank.span_ns);
  };
  for (const CoreTime::OfRank& rank : time.ranks) {
    finding.explain.rows.push_back(
        {rank.rank, rank.without_core_ns, rank.outside_calls_ns, Evidence::OrUnknown(rank.cpu_ns), rank.span_ns});
    if (most == nullptr || of(rank) > of(*most)) most = &rank;
  }
  finding.said.evidence = {Say(Word::kStarvedEvidence, {{"window", time.steps <= 0},
                                                        {"steps", If(time.steps > 0, Num{time.steps})},
                                                        {"without_core", Share{share}},
                                                        {"ranks", Num{static_cast<std::int64_t>(time.ranks.size())}},
                                                        {"all", If(share < all, Share{all})},
                                                        {"rank", Index{most->rank}},
                                                        {"most", Share{of(*most)}}})};
  std::int64_t without_ns = 0;
  for (const CoreTime::OfRank& rank : time.ranks) without_ns += rank.*counted;
  const std::int64_t others_ns = OtherThreadsNs(context);
  const bool own_threads = others_ns > 0 && HalfOf(others_ns, without_ns);
  if (own_threads) finding.said.evidence.push_back(Say(Word::kStarvedThreadsEvidence, {{"others_cpu", Ns{others_ns}}}));
  finding.said.brief = {Say(own_threads ? Word::kStarvedThreadsBrief : Word::kStarvedBrief)};
  finding.said.action = {Say(own_threads ? Word::kStarvedThreadsAction
                             : sharing   ? Word::kStarvedSharingAction
                                         : Word::kStarvedAction)};
  analysis.findings.push_back(std::move(finding));
}

}  // namespace lockstep::analysis
