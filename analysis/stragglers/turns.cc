// Reports waiting that no single rank causes.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "analysis/choose_findings.h"
#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "analysis/rules/stragglers.h"
#include "analysis/stragglers/costliest_rank.h"
#include "analysis/stragglers/hidden_waiting.h"
#include "analysis/stragglers/lateness.h"
#include "analysis/stragglers/own_lateness.h"
#include "core/rules/common.h"
#include "merge/timeline/totals_row.h"

namespace lockstep::analysis {
namespace {

// The collectives whose arrivals can be compared, without those at which `named` ranks arrived last: findings report
// these already.
struct Arrived {
  std::int64_t compared = 0, ties = 0;
  std::vector<std::int64_t> last, charge_ns;  // By position of the rank, as in ArrivalRow.
};

Arrived WithoutNamed(const Context& context, const Analysis& analysis) {
  Arrived arrived;
  const auto& t = context.tables().collectives;
  for (std::size_t c = 0; c < t.rows(); ++c)
    if (SaysWhoCameLast(context, c)) ++arrived.compared, arrived.ties += t.last_rank[c] < 0;
  for (const ArrivalRow& row : analysis.arrivals) {
    arrived.last.push_back(row.last);
    arrived.charge_ns.push_back(row.charge_ns);
  }
  for (const Straggler& straggler : analysis.stragglers)
    if (const std::size_t p = context.Position(straggler.rank); p < arrived.last.size()) {
      // It makes others late, by messages, who came last in its place: who would come last without it is not known.
      if (straggler.kind == StragglerKind::kPersistent && LittleOf(arrived.last[p], arrived.compared))
        return {.last = std::vector<std::int64_t>(arrived.last.size(), 0),
                .charge_ns = std::vector<std::int64_t>(arrived.last.size(), 0)};
      arrived.compared -= arrived.last[p];
      arrived.last[p] = arrived.charge_ns[p] = 0;
    }
  return arrived;
}

// "rank 7 came last in 4 of 8 collectives, by 31 ms in all, rank 5 in 2, by 1 ms; in 2 nobody did by more than the
// clocks can tell"
std::vector<Clause> WhoCameLast(const Context& context, const Arrived& arrived, bool others) {
  const std::vector<std::int64_t>& last = arrived.last;
  std::vector<std::size_t> order(last.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return arrived.charge_ns[a] > arrived.charge_ns[b]; });
  const Fact compared{"collectives", Num{arrived.compared}}, ties{"ties", Num{arrived.ties}};
  std::vector<Clause> who;
  for (std::size_t i = 0; i < std::min(order.size(), rules::kTurnsRanksTold) && last[order[i]] > 0; ++i)
    who.push_back(Say(i > 0    ? Word::kTurnsLastNext
                      : others ? Word::kTurnsLastOfOthers
                               : Word::kTurnsLast,
                      {{"rank", Index{context.ranks()[order[i]]}},
                       {"last", Num{last[order[i]]}},
                       compared,
                       {"waited", Ns{arrived.charge_ns[order[i]]}}}));
  if (arrived.ties == 0 && !others && who.empty()) return {Say(Word::kTurnsNotCompared)};
  if (arrived.ties > 0) who.push_back(Say(who.empty() ? Word::kTurnsNobodyLast : Word::kTurnsTies, {ties, compared}));
  return who;
}

// The rank (position) that most of all waiting for a last one is for. Time decides, not how often it was: a rank
// that is late by 1 us two thousand times costs less than one that is late by 50 ms twenty times.
std::optional<std::size_t> OneRank(const Arrived& arrived) {
  const std::int64_t all_ns = std::accumulate(arrived.charge_ns.begin(), arrived.charge_ns.end(), std::int64_t{0});
  const auto most = std::max_element(arrived.charge_ns.begin(), arrived.charge_ns.end());
  if (all_ns <= 0 || static_cast<double>(*most) < rules::kTurnsForOneShare * static_cast<double>(all_ns))
    return std::nullopt;
  return static_cast<std::size_t>(most - arrived.charge_ns.begin());
}

// "of 6.59 ms that ranks wait for each other 6.51 ms are for rank 1 (6.49 ms for its messages)"
std::vector<Clause> ForWhom(const Context& context, const CostliestRank& rank) {
  const auto ns = [](double value) { return Ns{std::llround(value)}; };
  const double messages_ns = rank.awaited.message_ns[rank.position];
  std::vector<Clause> text = {
      Say(Word::kTurnsForWhom, {{"waited", ns(rank.awaited.All())},
                                {"for_rank", ns(rank.awaited.Of(rank.position))},
                                {"rank", Index{context.ranks()[rank.position]}},
                                {"in_collectives", ns(rank.awaited.collective_ns[rank.position])},
                                {"for_messages", If(messages_ns > 0, ns(messages_ns))}})};
  const auto& totals = context.tables().rank_totals;
  std::vector<std::int64_t> others;
  for (std::size_t p = 0; p < context.ranks().size(); ++p)
    if (const std::size_t row = merge::TotalsRow(totals, context.ranks()[p]); p != rank.position && row < totals.rows())
      others.push_back(totals.compute_ns[row]);
  const std::size_t own = merge::TotalsRow(totals, context.ranks()[rank.position]);
  if (others.empty() || own >= totals.rows()) return text;
  const std::int64_t longer_ns = totals.compute_ns[own] - LowerMedian(std::move(others));
  if (longer_ns > 0) text.push_back(Say(Word::kTurnsComputesLonger, {{"longer", Ns{longer_ns}}}));
  return text;
}

// In a run with too few steps to name a rank: the rank that is the latest in each of them, by twice the lateness of any
// other; with the probability that by chance the same rank is the latest in all.
struct ProbablyLate {
  std::size_t position = 0;
  double p_value = 1;
  std::int64_t least_ns = INT64_MAX, others_ns = 0;  // By how much at least; by how much any other one at most.
  std::int64_t gain_ns = 0;  // Of a rank that works longest, where no collective shows who waits for it.
};
std::optional<ProbablyLate> LatestIn(const LatenessTable& late, std::size_t n, double limit) {
  const std::size_t units = late.behind_ns.size();
  ProbablyLate found;
  found.p_value = std::pow(static_cast<double>(n), 1 - static_cast<double>(units));
  for (std::size_t u = 0; u < units; ++u) {
    std::vector<std::int64_t> behind = late.behind_ns[u];
    const auto at = static_cast<std::size_t>(std::max_element(behind.begin(), behind.end()) - behind.begin());
    if (u > 0 && at != found.position) return std::nullopt;
    found.position = at;
    const std::int64_t most = std::exchange(behind[at], 0), next = *std::max_element(behind.begin(), behind.end());
    if (static_cast<double>(most) < limit || !StandsOut(most, next)) return std::nullopt;
    found.least_ns = std::min(found.least_ns, most);
    found.others_ns = std::max(found.others_ns, next);
  }
  return found;
}

// It is late mostly by its own work. Where messages pass lateness on, collectives need not show whose it is: then the
// rank that works longest, if the steps were shorter without that.
std::optional<ProbablyLate> LatestThroughout(const Context& context, double limit) {
  const std::size_t n = context.ranks().size(), units = context.units().size();
  if (n < 2 || units < 2 || units >= rules::kFewest) return std::nullopt;
  if (const std::optional<ProbablyLate> found = LatestIn(Lateness(context), n, limit)) {
    const OwnLateness lateness = OwnLatenessOf(context, found->position, {found->position});
    const auto sum = [](const std::vector<std::int64_t>& of) {
      return static_cast<double>(std::accumulate(of.begin(), of.end(), std::int64_t{0}));
    };
    if (lateness.compared > 0 && HalfOf(sum(lateness.own_ns), sum(lateness.late_ns))) return found;
  }
  if (context.tables().p2p_pairs.rows() == 0 || !context.units_are_steps()) return std::nullopt;
  std::optional<ProbablyLate> found = LatestIn(WorkBeyond(context), n, limit);
  if (!found || WorthByReplay(context, {found->position}, limit).empty()) return std::nullopt;
  found->gain_ns = GainByReplay(context, found->position);
  return found;
}

}  // namespace

void FindTurns(const Context& context, Analysis& analysis) {
  const Summary& s = analysis.summary;
  const std::int64_t whole = s.terms.Sum();
  std::int64_t left = s.terms.exposed_wait_ns - s.message_wait_ns;  // In collectives.
  for (const Finding& finding : analysis.findings) {
    if (finding.id == FindingId::kStragglerArrival)
      left -= PriceNs(analysis, finding).value_or(s.terms.exposed_wait_ns);
    // Beyond the transfer that finding's price contains the waiting caused by it.
    if (finding.id == FindingId::kLinkSlow)
      left -= finding.saves_ns_per_step
                  ? std::max<std::int64_t>(
                        0, *finding.saves_ns_per_step - s.terms.exposed_transfer_ns - s.terms.exposed_unsplit_ns)
                  : s.terms.exposed_wait_ns;
  }
  if (whole <= 0) return;
  const bool also = !analysis.stragglers.empty();
  const double limit = rules::kNameShare * static_cast<double>(whole);
  const std::optional<ProbablyLate> found = also ? std::nullopt : LatestThroughout(context, limit);
  if (found && found->gain_ns > 0) left = found->gain_ns;
  const std::optional<CostliestRank> in_all = CostliestRankOf(context, analysis, limit);
  if (in_all) left = s.terms.exposed_wait_ns;
  if (!in_all && static_cast<double>(left) < limit) return;
  Finding finding;
  finding.id = FindingId::kWaitTurns;
  const Fact cost{"cost", PartOf(s, left)}, per_step{"per_step", s.per_step};
  const auto units = static_cast<std::int64_t>(context.units().size());
  const Arrived arrived = WithoutNamed(context, analysis);
  std::int64_t named_last = 0, others_last = 0;
  for (const ArrivalRow& row : analysis.arrivals)
    (std::ranges::count(analysis.stragglers, row.rank, &Straggler::rank) > 0 ? named_last : others_last) += row.last;
  if (named_last > 0 && others_last == 0 && arrived.ties == 0) return;  // Nobody else was ever last.
  const std::optional<std::size_t> one_rank = OneRank(arrived);
  const std::size_t mostly = one_rank.value_or(0);
  const ProbablyLate latest = found.value_or(ProbablyLate{});  // GCC 12 warns of an optional that is read below.
  const bool probably = found && latest.p_value <= rules::kTurnsPossible;
  const bool by_work = found && latest.gain_ns > 0;
  const Fact by_chance{"by_chance", Share{latest.p_value}}, units_fact{"units", Num{units}};
  const auto rank_fact = [&](std::size_t position) { return Fact{"rank", Index{context.ranks()[position]}}; };
  const Clause whichever = Say(Word::kTurnsWhichever, {per_step, cost});
  if (in_all) {
    finding.rank = context.ranks()[in_all->position];
    finding.said.headline = {Say(Word::kTurnsMostly, {per_step, cost, rank_fact(in_all->position)})};
    finding.said.brief = {Say(Word::kTurnsMostlyBrief, {rank_fact(in_all->position)})};
  } else if (!by_work && !also && MostOf(arrived.ties, arrived.compared)) {
    finding.said.headline = {whichever, Say(Word::kTurnsBelowResolution)};
    finding.said.brief = {Say(Word::kTurnsWhicheverBrief)};
  } else if (probably) {
    const Fact rank = rank_fact(latest.position), likely{"likely", latest.p_value <= rules::kTurnsProbable};
    finding.said.headline = {Say(by_work ? Word::kTurnsProbablyByWork : Word::kTurnsProbably,
                                 {per_step, cost, likely, rank, units_fact, by_chance})};
    finding.said.brief = {Say(Word::kTurnsProbablyBrief, {likely, rank})};
    finding.rank = context.ranks()[latest.position];
  } else if (!also && context.units().size() < rules::kFewest) {
    // It is unknown whether it is always the same rank.
    const Fact short_run{"short_run", Clauses{{s.per_step ? Say(Word::kTurnsFewSteps, {{"steps", Num{units}}})
                                                          : Say(Word::kTurnsShort)}}};
    finding.said.headline = {whichever, found ? Say(by_work ? Word::kTurnsLongestByChance : Word::kTurnsLatestByChance,
                                                    {rank_fact(latest.position), units_fact, per_step, by_chance})
                                        : one_rank ? Say(Word::kTurnsLastByChance,
                                                         {rank_fact(mostly),
                                                          {"last", Num{arrived.last[mostly]}},
                                                          {"collectives", Num{analysis.arrivals[mostly].collectives}},
                                                          short_run})
                                                   : Say(Word::kTurnsUnknown, {short_run})};
    finding.said.brief = {one_rank ? Say(Word::kTurnsMostlyBrief, {rank_fact(mostly)})
                                   : Say(Word::kTurnsWhicheverBrief)};
  } else if (one_rank) {
    // It is not in turn with others, and still nothing shows that it works longer in every step.
    finding.said.headline = {Say(Word::kTurnsMostly, {per_step, cost, rank_fact(mostly)}),
                             Say(analysis.run.cores_scarce ? Word::kTurnsCoresScarce : Word::kTurnsNothingShows)};
    finding.said.brief = {Say(Word::kTurnsMostlyBrief, {rank_fact(mostly)})};
  } else {
    finding.said.headline = {Say(s.per_step && also ? Word::kTurnsApart : Word::kTurns, {per_step, cost})};
    finding.said.brief = {Say(Word::kTurnsBrief)};
  }
  SetPrice(s, left, finding);
  finding.upper_bound = true;

  for (const ArrivalRow& arrival : analysis.arrivals)
    finding.explain.rows.push_back({arrival.rank, arrival.collectives, arrival.last, arrival.ties, arrival.charge_ns});
  // Whoever was waited for most comes first: of thousands of ranks the first rows alone are read.
  std::stable_sort(finding.explain.rows.begin(), finding.explain.rows.end(),
                   [](const auto& a, const auto& b) { return std::pair(a[4], a[2]) > std::pair(b[4], b[2]); });
  finding.explain.columns = {"rank", "collectives", "last", "ties", "charge_ns"};
  if (by_work)
    finding.said.evidence = {Say(Word::kTurnsByWorkEvidence, {rank_fact(latest.position),
                                                              {"longer", Ns{latest.least_ns}},
                                                              {"others", Ns{latest.others_ns}},
                                                              {"shorter", Ns{latest.gain_ns}}})};
  else
    finding.said.evidence = in_all ? ForWhom(context, *in_all) : WhoCameLast(context, arrived, also);
  if (!in_all && one_rank && analysis.arrivals[mostly].collectives < arrived.compared)
    finding.said.evidence.push_back(
        Say(Word::kTurnsTookPartEvidence, {{"collectives", Num{analysis.arrivals[mostly].collectives}}}));
  if (in_all)
    finding.said.action = {Say(Word::kTurnsTimelineAction, {rank_fact(in_all->position)})};
  else if (probably)
    finding.said.action = {Say(Word::kTurnsRecordAction, {rank_fact(latest.position), {"by_work", by_work}})};
  else if (analysis.run.ranks_sharing_cores > 0)
    finding.said.action = {Say(Word::kTurnsCoresAction, {{"sharing_ranks", Index{analysis.run.ranks_sharing_cores}},
                                                         {"cores", Index{analysis.run.shared_cores}}})};
  else
    finding.said.action = {
        Say(analysis.run.cores_scarce ? Word::kTurnsScarceAction : Word::kTurnsEvenAction, {per_step})};
  analysis.findings.push_back(std::move(finding));
}

}  // namespace lockstep::analysis
