// Waiting that no single rank is to blame for.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "analysis/choose_findings.h"
#include "analysis/core/format.h"
#include "analysis/passes.h"
#include "analysis/stragglers/lateness.h"

namespace lockstep::analysis {
namespace {

// Instances by who came last, ties included: for the eye, not for a verdict. Those that `named` ranks came last in have
// been told already.
std::vector<std::int64_t> LatestCounts(const Context& context, const std::vector<Straggler>& named) {
  const auto& t = context.tables().collectives;
  const auto& members = context.tables().collective_ranks;
  std::vector<std::int64_t> latest(context.ranks().size(), 0);
  for (std::size_t c = 0; c < t.rows(); ++c) {
    if (!context.Comparable(c)) continue;
    const auto begin = members.arrival_ns.begin();
    const auto last = std::max_element(begin + static_cast<std::ptrdiff_t>(context.timeline().FirstMember(c)),
                                       begin + static_cast<std::ptrdiff_t>(context.timeline().FirstMember(c + 1)));
    const std::size_t p = context.Position(members.rank[static_cast<std::size_t>(last - begin)]);
    if (p != kNowhere) ++latest[p];
  }
  for (const Straggler& straggler : named)
    if (const std::size_t p = context.Position(straggler.rank); p != kNowhere) latest[p] = 0;
  return latest;
}

// "rank 7 came last in 5 of 8 collectives, rank 5 in 2, rank 4 in 1"
std::string WhoCameLast(const Context& context, const std::vector<std::int64_t>& latest, bool others) {
  constexpr std::size_t kMostNamed = 3;
  std::vector<std::size_t> order(latest.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return latest[a] > latest[b]; });
  const std::int64_t all = std::accumulate(latest.begin(), latest.end(), std::int64_t{0});
  std::string text;
  for (std::size_t i = 0; i < std::min(order.size(), kMostNamed) && latest[order[i]] > 0; ++i)
    text += i == 0 ? fmt::format("rank {} came last in {} of {} {}collectives", context.ranks()[order[i]],
                                 Count(latest[order[i]]), Count(all), others ? "other " : "")
                   : fmt::format(", rank {} in {}", context.ranks()[order[i]], Count(latest[order[i]]));
  return text;
}

}  // namespace

void FindTurns(const Context& context, Analysis& analysis) {
  const Summary& s = analysis.summary;
  const std::int64_t whole = s.terms.Sum();
  std::int64_t left = s.terms.exposed_wait_ns;
  for (const Finding& finding : analysis.findings)
    if (finding.id == FindingId::kStragglerArrival) left -= finding.saves_ns_per_step.value_or(s.terms.exposed_wait_ns);
  if (whole <= 0 || static_cast<double>(left) < kNameShare * static_cast<double>(whole)) return;
  Finding finding;
  finding.id = FindingId::kWaitTurns;
  const bool also = !analysis.stragglers.empty();
  const std::string costs = (s.per_step ? "costs " : "takes ") + OfTheStep(s, left);
  const auto units = static_cast<std::int64_t>(context.units().size());
  const std::vector<std::int64_t> latest = LatestCounts(context, analysis.stragglers);
  const std::int64_t compared = std::accumulate(latest.begin(), latest.end(), std::int64_t{0});
  std::int64_t unsure = compared;
  for (const ArrivalRow& arrival : analysis.arrivals)
    if (std::none_of(analysis.stragglers.begin(), analysis.stragglers.end(),
                     [&](const Straggler& straggler) { return straggler.rank == arrival.rank; }))
      unsure -= arrival.last;
  if (!also && unsure * 2 > compared) {
    finding.headline =
        fmt::format("Waiting for whichever rank comes last {}; which one is below clock resolution.", costs);
    finding.brief = "waiting for whichever rank comes last";
  } else if (!also && context.units().size() < kMinUnits) {
    // Nothing says whether it is always the same one.
    finding.headline = fmt::format(
        "Waiting for whichever rank comes last {}; {}.", costs,
        s.per_step ? Plural(units, "step") + " cannot tell which" : "the recording is too short to tell which");
    finding.brief = "waiting for whichever rank comes last";
  } else {
    finding.headline =
        fmt::format("{}: waiting for whichever comes last {}.",
                    s.per_step && also ? "Apart from that the ranks take turns" : "No single rank is to blame", costs);
    finding.brief = "the ranks take turns being late";
  }
  if (s.per_step)
    finding.saves_ns_per_step = left;
  else
    finding.saves_share = static_cast<double>(left) / static_cast<double>(whole);
  finding.upper_bound = true;
  finding.confidence = 0.5;

  const std::vector<std::int64_t> all = LatestCounts(context, {});
  for (std::size_t p = 0; p < analysis.arrivals.size(); ++p) {
    const ArrivalRow& arrival = analysis.arrivals[p];
    finding.explain.rows.push_back(
        {arrival.rank, arrival.last, p < all.size() ? all[p] : 0, arrival.ties, arrival.charge_ns});
  }
  finding.explain.columns = {"rank", "last", "last_or_tied", "ties", "charge_ns"};
  finding.evidence = WhoCameLast(context, latest, also);
  if (unsure > 0) finding.evidence += fmt::format("; {} of them by less than the clocks can tell", Count(unsure));
  finding.action =
      analysis.run.ranks_sharing_cores > 0
          ? fmt::format("give each rank a core of its own: {} ranks share {} {}", analysis.run.ranks_sharing_cores,
                        analysis.run.shared_cores, analysis.run.shared_cores == 1 ? "core" : "cores")
          : "even out the work per rank and step (input sizes, garbage collection, other processes on the nodes)";
  analysis.findings.push_back(std::move(finding));
}

}  // namespace lockstep::analysis
