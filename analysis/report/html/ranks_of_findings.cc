#include "analysis/report/html/ranks_of_findings.h"

#include <algorithm>

namespace lockstep::report {

std::vector<std::int32_t> RanksOfFindings(const analysis::Context& context, const analysis::Analysis& analysis) {
  std::vector<std::int32_t> named;
  const auto add = [&](std::int32_t rank) {
    if (context.Position(rank) == analysis::kNowhere) return;
    if (std::find(named.begin(), named.end(), rank) == named.end()) named.push_back(rank);
  };
  for (const analysis::Straggler& straggler : analysis.stragglers) add(straggler.rank);
  for (const analysis::Finding& finding : analysis.findings) add(finding.rank);
  return named;
}

}  // namespace lockstep::report
