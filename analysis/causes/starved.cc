// Training threads that were ready to run and had no core.

#include <fmt/format.h>

#include "analysis/choose_findings.h"
#include "analysis/core/format.h"
#include "analysis/passes.h"

namespace lockstep::analysis {

void FindStarved(const Context&, Analysis& analysis) {
  const Summary& s = analysis.summary;
  const RunFacts& run = analysis.run;
  const std::int64_t whole = s.terms.Sum();
  if (!s.offcpu_ns || whole <= 0 || static_cast<double>(*s.offcpu_ns) < kNameShare * static_cast<double>(whole)) return;
  Finding finding;
  finding.id = FindingId::kStarved;
  const std::string when = "for " + OfTheStep(s, *s.offcpu_ns);
  finding.headline = run.ranks_sharing_cores > 0
                         ? fmt::format("{} ranks share {}: their training threads wait for a core {}.",
                                       run.ranks_sharing_cores, Plural(run.shared_cores, "core"), when)
                         : fmt::format("The training threads are ready to run but have no core {}.", when);
  finding.brief = "ready to run, but without a core";
  // No price: part of that line stands inside waits that would be spent anyway.
  finding.confidence = 0.7;
  finding.explain.columns = {"rank", "offcpu_ns", "cpu_ns", "span_ns"};
  for (const RankRow& row : analysis.ranks)
    finding.explain.rows.push_back({row.rank, row.offcpu_ns.value_or(-1), row.cpu_ns.value_or(-1), row.span_ns});
  finding.evidence = fmt::format("{} of the time runnable without a core (run-queue delay), mean over ranks",
                                 Percent(*s.offcpu_ns, whole));
  finding.action =
      run.ranks_sharing_cores > 0
          ? "use as many ranks as cores; the timings of this run do not apply to a run with a core per rank"
          : "see what else runs on the nodes, or widen the ranks' core sets (mpirun --report-bindings)";
  analysis.findings.push_back(std::move(finding));
}

}  // namespace lockstep::analysis
