// Waiting that no single rank is to blame for.

#include <fmt/format.h>

#include <algorithm>

#include "analysis/passes.h"
#include "analysis/report/format.h"

namespace lockstep {

void FindTurns(const Context&, Analysis& analysis) {
  const Summary& s = analysis.summary;
  const std::int64_t whole = s.terms.Sum();
  std::int64_t left = s.terms.exposed_wait_ns;
  for (const Finding& finding : analysis.findings)
    if (finding.id == "straggler.arrival") left -= finding.saves_ns_per_step.value_or(s.terms.exposed_wait_ns);
  if (whole <= 0 || static_cast<double>(left) < kNameShare * static_cast<double>(whole)) return;
  Finding finding;
  finding.id = "wait.turns";
  const bool also = !analysis.stragglers.empty();
  finding.headline =
      s.per_step ? fmt::format("{}: waiting for whichever comes last costs {} of each {} step.",
                               also ? "Apart from that the ranks take turns" : "No single rank is to blame",
                               Duration(left), Duration(whole))
                 : fmt::format("No single rank is to blame: waiting for whichever comes last takes {} of the time.",
                               Percent(left, whole));
  finding.brief = "the ranks take turns being late";
  if (s.per_step) finding.saves_ns_per_step = left;
  finding.upper_bound = true;
  finding.confidence = 0.5;

  std::int64_t most = 0, total = 0, ties = 0;
  for (const ArrivalRow& arrival : analysis.arrivals) {
    most = std::max(most, arrival.last);
    total += arrival.last;
    ties = std::max(ties, arrival.ties);
    finding.rows.rows.push_back({arrival.rank, arrival.last, arrival.ties, arrival.charge_ns});
  }
  finding.rows.columns = {"rank", "last", "ties", "charge_ns"};
  finding.evidence = fmt::format("{} of {} collectives had the same rank last at most, {} ties", Percent(most, total),
                                 Count(total + ties), Count(ties));
  finding.action =
      analysis.run.sharing_ranks > 0
          ? fmt::format("give each rank a core of its own: {} ranks share {} {}", analysis.run.sharing_ranks,
                        analysis.run.shared_cores, analysis.run.shared_cores == 1 ? "core" : "cores")
          : "even out the work per rank and step (input sizes, garbage collection, other processes on the nodes)";
  analysis.findings.push_back(std::move(finding));
}

}  // namespace lockstep
