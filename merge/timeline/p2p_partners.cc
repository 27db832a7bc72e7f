#include "merge/timeline/p2p_partners.h"

#include <utility>

#include "merge/match/p2p.h"
#include "merge/readers/run_files.h"
#include "merge/timeline/rank_pass.h"

namespace lockstep::merge {

Result<P2pPartners> FindP2pPartners(const Timeline& timeline, unsigned jobs) {
  LS_TRY(const RunFiles run, OpenRun(timeline.run_dir, jobs));
  std::vector<ClockMap> clocks;
  clocks.reserve(run.ranks.size());
  std::vector<MatchRank> ranks;
  for (const RunRank& rank : run.ranks) {
    clocks.emplace_back(timeline.tables.clock, rank.rank);
    MatchRank match;
    match.rank = rank.rank;
    match.tables = &rank.head;
    match.clock = &clocks.back();
    const Interval span = CapturedSpan(rank.head);
    match.window = {clocks.back().ToCluster(span.begin), clocks.back().ToCluster(span.end)};
    ranks.push_back(match);
  }
  MatchedP2p matched = MatchP2p(ranks, jobs);
  std::vector<RankP2pWaits> waits = FindP2pWaits(ranks, matched, {0, 0}, jobs);
  P2pPartners partners;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    partners.emplace(ranks[r].rank, RankP2pPartners{std::move(matched.partner_begin_ns[r]), std::move(waits[r])});
  return partners;
}

}  // namespace lockstep::merge
