// Calls of libc in which the training threads are blocked, outside of communication and input, on all ranks: asleep,
// waiting for locks, other threads or Python's lock, in files and sockets. By place.

#include <algorithm>

#include "analysis/causes/cause.h"
#include "analysis/rules/causes.h"
#include "analysis/stacks/blocked_places.h"

namespace lockstep::analysis {
namespace {

struct BlockedFound {
  RankCost frame;  // Its ns stay 0.
  BlockedSums places;

  void Add(BlockedFound&& next) {
    const std::size_t before = frame.step.size(), more = next.frame.step.size();
    frame.Add(std::move(next.frame));
    for (auto& [place, sum] : places)
      if (!next.places.contains(place)) sum.ns.resize(before + more);
    for (auto& [place, sum] : next.places) {
      BlockedSum& here = places[place];
      here.ns.resize(before);
      here.Add(sum);
    }
  }
};

class BlockedCause : public CauseOf<BlockedFound> {
 public:
  std::optional<BlockedFound> EvidenceOf(const RankEvents& events) const override {
    // Of a GPU's rank the GPU's idle time has causes, and its host's waits are no term.
    if (events.gpu()) return std::nullopt;
    std::vector<Interval> windows;
    for (const gpu::RankView::Step& stretch : events.stretches()) windows.push_back(stretch.window);
    return BlockedFound{RankCost(events), BlockedWithin(events.view().tables, windows)};
  }

  void Report(const Context& context, Analysis& analysis) override {
    const std::int64_t whole = analysis.summary.terms.Sum();
    struct Priced {
      Cost cost;
      BlockedAt at;
      Evidence rows;
    };
    std::vector<Priced> priced;
    BlockedSums all;  // Of all ranks that were read.
    for (const BlockedFound* one : found())
      for (const auto& [place, sum] : one->places) all[place].Add(sum);
    for (const auto& [place, sum] : all) {
      std::vector<RankCost> ranks;
      Priced one;
      one.rows.columns = {"rank", "steps", "of_steps", "calls", "ns"};
      std::int64_t longest_ns = -1;
      for (const BlockedFound* found : found()) {
        ranks.push_back(found->frame);
        const auto here = found->places.find(place);
        if (here == found->places.end()) continue;
        ranks.back().ns = here->second.ns;
        const BlockedAt described = Described(place, here->second);
        one.rows.rows.push_back(
            {found->frame.rank, described.steps, described.of_steps, here->second.count, here->second.Total()});
        if (here->second.Total() > longest_ns) one.at = described, longest_ns = here->second.Total();
      }
      one.cost = CostOf(ranks, whole, context.options().seed);
      if (one.cost.ns > 0) priced.push_back(std::move(one));
    }
    std::stable_sort(priced.begin(), priced.end(),
                     [](const Priced& a, const Priced& b) { return a.cost.ns > b.cost.ns; });
    priced.resize(std::min(priced.size(), rules::kBlockedPlacesListed));
    for (Priced& one : priced) Tell(context, whole, one.cost, std::move(one.at), std::move(one.rows), analysis);
  }

 private:
  static void Tell(const Context& context, std::int64_t whole, const Cost& cost, BlockedAt at, Evidence rows,
                   Analysis& analysis) {
    const Clauses often = cost.per_step ? HowOften(at) : Clauses();
    // "on average" says nothing more where the number of steps does.
    Cost all_steps = cost;
    if (!often.all.empty()) all_steps.intermittent = false;
    Finding finding;
    finding.id = FindingId::kBlocked;
    finding.said.headline = {Say(Word::kBlocked, {{"one_rank", context.ranks().size() == 1},
                                                  {"blocked", PartOf(all_steps, whole)},
                                                  {"often", often},
                                                  {"what", Clauses{{WhatAndWhere(at)}}}})};
    finding.said.brief = {Say(Word::kBlockedBrief, {{"what", Clauses{{WaitName(at)}}}, {"line", LineOf(at)}})};
    std::int64_t calls = 0, ns = 0;
    for (const auto& row : rows.rows) calls += row[3], ns += row[4];
    finding.said.evidence = {
        Say(Word::kBlockedEvidence, {{"calls", Num{calls}},
                                     {"call", at.call},
                                     {"each", Ns{ns / std::max<std::int64_t>(1, calls)}},
                                     {"ranks", Num{static_cast<std::int64_t>(rows.rows.size())}}})};
    finding.said.action = {ActionFor(at)};
    finding.upper_bound = true;
    SetPrice(cost, finding);
    finding.explain = std::move(rows);
    finding.blocked = std::move(at);
    analysis.findings.push_back(std::move(finding));
  }
};

}  // namespace

std::unique_ptr<Cause> MakeBlocked() { return std::make_unique<BlockedCause>(); }

}  // namespace lockstep::analysis
