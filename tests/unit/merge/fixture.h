#pragma once
// Ranks in memory through matching, steps and breakdown, as MergeRun does it with files.

#include <memory>
#include <vector>

#include "merge/match/collectives.h"
#include "merge/match/p2p.h"
#include "merge/steps/steps.h"
#include "merge/timeline/rank_pass.h"
#include "rank_builder.h"

namespace lockstep::test {

class Merged {
 public:
  // `files` of the `size` ranks have a file; 0: all.
  explicit Merged(std::int32_t size, std::int32_t files = 0) : absent_(files == 0 ? 0 : size - files) {
    for (std::int32_t r = 0; r < size - absent_; ++r) ranks_.push_back(std::make_unique<RankBuilder>(r, size));
    error_ns.assign(ranks_.size(), 0);
    offset_ns.assign(ranks_.size(), 0);
    cut_end.assign(ranks_.size(), false);
  }
  RankBuilder& operator[](std::int32_t r) { return *ranks_[static_cast<std::size_t>(r)]; }

  std::vector<std::int64_t> error_ns, offset_ns;
  std::vector<bool> cut_end;
  unsigned jobs = 1;
  bool hta = false;

  void Run() {
    schema::Clock clock;
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      clock.Append({.rank = ranks_[r]->rank(), .local_ns = 0, .offset_ns = offset_ns[r], .base_error_ns = error_ns[r]});
    std::vector<merge::MatchRank> match;
    clocks_.clear();
    for (const auto& rank : ranks_) clocks_.emplace_back(clock, rank->rank());
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const Interval span = merge::CapturedSpan(ranks_[r]->t);
      match.push_back({ranks_[r]->rank(),
                       &ranks_[r]->t,
                       &clocks_[r],
                       {clocks_[r].ToCluster(span.begin), clocks_[r].ToCluster(span.end)},
                       false,
                       cut_end[r]});
    }
    matched = merge::MatchCollectives(match, static_cast<std::size_t>(absent_), jobs);
    p2p = merge::MatchP2p(match, jobs);
    const std::vector<merge::RankP2pWaits> waits = merge::FindP2pWaits(match, p2p, {0, 0}, jobs);
    steps = merge::FindSteps(match, matched);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      merge::RankPassInput input;
      input.index = r;
      input.clock = &clocks_[r];
      input.p2p = &p2p;
      input.p2p_waits = &waits[r];
      input.steps = &steps.ranks[r];
      input.times = steps.times;
      input.hta = hta;
      if (!steps.common.empty()) input.first_step = steps.common.front(), input.last_step = steps.common.back();
      passed.push_back(merge::PassEvents(input, ranks_[r]->t, *ingest::ReadFromMemory(ranks_[r]->t), matched));
      terms.push_back(passed.back().totals.Get(0));
    }
    checks = merge::FinishCollectives(matched, jobs);
  }

  const schema::TlCollectives& collectives() const { return matched.collectives; }
  const schema::TlCollectiveRanks& members() const { return matched.members; }
  const std::vector<merge::ClockMap>& clocks() const { return clocks_; }

  merge::MatchedCollectives matched;
  merge::MatchedP2p p2p;
  merge::JobSteps steps;
  std::vector<merge::RankPassResult> passed;
  std::vector<schema::TlRankTotals::Row> terms;  // Of the analysis window.
  merge::CollectiveChecks checks;

 private:
  std::int32_t absent_;
  std::vector<std::unique_ptr<RankBuilder>> ranks_;
  std::vector<merge::ClockMap> clocks_;
};

}  // namespace lockstep::test
