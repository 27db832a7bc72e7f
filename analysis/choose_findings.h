#pragma once
// The rule of findings: at most five, by what they gain (an upper bound counts half), none below 1 % of the step, what
// they gain together, and that the first of them is the verdict.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "analysis/context.h"
#include "analysis/core/model.h"

namespace lockstep::analysis {

// The time of a cause beside the step or the window.
Part PartOf(const Summary& summary, std::int64_t ns);
// What a finding's price is of, ns: the step or the window that the summary shows, or the steps since a rank drifts.
inline std::int64_t WholeOf(const Analysis& analysis, const Finding& finding) {
  return finding.of_step_ns.value_or(analysis.summary.terms.Sum());
}

// Sets its price: `ns` of the mean step, or of the whole recording in runs without steps.
void SetPrice(const Summary& summary, std::int64_t ns, Finding& finding);
// The price in ns of the same; nothing: it has none.
std::optional<std::int64_t> PriceNs(const Analysis& analysis, const Finding& finding);

// What a finding gains of the step, or of the window in runs without steps; below 0: it has no price.
double GainShare(const Analysis& analysis, const Finding& finding);

// Its one sentence.
std::string HeadlineOf(const Finding& finding);

// Findings of what ranks spend on each other: waiting and transfers.
bool WaitsForOthers(FindingId id);

// Its price rests on transfers of sizes that were not measured: marks it, and says so in its sentences, which are
// complete.
void SayExtrapolated(Finding& finding);

// Two findings that price the same time, or part of it.
bool Overlap(const Finding& a, const Finding& b);

// Idle time of which no finding tells, if it is 2 % of the step: a finding of its own. `told`: the kinds of findings
// and of remarks that there are (idle_other.cc).
void TellOtherIdle(const Context& context, const std::set<FindingId>& told, Analysis& analysis);

// Of the findings that all passes made those that are shown, in their order, with `additivity`.
void ChooseFindings(const Context& context, Analysis& analysis);

}  // namespace lockstep::analysis
