// Finds non-blocking collectives that were posted early and made progress only in Wait.

#include <algorithm>

#include "analysis/choose_findings.h"
#include "analysis/communication/exposure.h"
#include "analysis/communication/measure_network.h"
#include "analysis/passes.h"
#include "analysis/rules/network.h"
#include "core/rules/common.h"
#include "merge/timeline/rank_activity.h"

namespace lockstep::analysis {
namespace {

// If ends are certain, it is known when data moved.
bool EndsUncertain(const schema::TlCollectives& t) {
  std::size_t posted = 0, censored = 0;
  for (std::size_t c = 0; c < t.rows(); ++c) {
    if (t.mode[c] != schema::Code(CollectiveMode::kNonBlocking) &&
        t.mode[c] != schema::Code(CollectiveMode::kPersistent))
      continue;
    ++posted;
    censored += t.censored[c] != 0;
  }
  return censored > 0 && MuchOf(censored, posted);
}

// Whether nearly all bytes of collectives were posted: then the transfer that ends in Wait is theirs as well.
bool MostlyPosted(const schema::TlCollectives& t) {
  double posted = 0, all = 0;
  for (std::size_t c = 0; c < t.rows(); ++c) {
    all += static_cast<double>(t.bytes[c]);
    if (t.mode[c] == schema::Code(CollectiveMode::kNonBlocking) ||
        t.mode[c] == schema::Code(CollectiveMode::kPersistent))
      posted += static_cast<double>(t.bytes[c]);
  }
  return NearlyAllOf(posted, all);
}

// Time that non-blocking collectives were exposed in their Wait after the last member had arrived, mean over ranks, per
// step (per window in runs without steps).
std::int64_t MovedInWait(const Context& context, const Analysis& analysis) {
  const auto& t = context.tables().collectives;
  const auto& members = context.tables().collective_ranks;
  std::int64_t sum = 0;
  for (std::size_t c = 0; c < t.rows(); ++c) {
    if ((t.mode[c] != schema::Code(CollectiveMode::kNonBlocking) &&
         t.mode[c] != schema::Code(CollectiveMode::kPersistent)) ||
        !context.Counts(c))
      continue;
    for (std::size_t m = context.timeline().FirstMember(c); m < context.timeline().FirstMember(c + 1); ++m)
      sum += members.end_high_ns[m] - members.end_low_ns[m];
  }
  const std::int64_t steps = analysis.summary.per_step ? analysis.run.steps : 1;
  return sum / std::max<std::int64_t>(1, steps * static_cast<std::int64_t>(context.ranks().size()));
}

}  // namespace

void FindWaitOnlyProgress(const Context& context, Analysis& analysis) {
  const std::size_t n = context.ranks().size(), read = std::min(n, rules::kProgressRanksRead);
  if (!EndsUncertain(context.tables().collectives)) return;
  ProgressCounts all;
  Finding finding;
  finding.explain.columns = {"rank", "posted", "posted_early", "moved_only_in_wait", "unattended_ns"};
  for (std::size_t i = 0; i < read; ++i) {
    const std::int32_t rank = context.ranks()[i * n / read];
    const auto tables = context.ReadActivity(rank);
    if (!tables.ok()) continue;
    const ProgressCounts counts = CountProgress(tables.value());
    all.posted += counts.posted;
    all.early += counts.early;
    all.wait_only += counts.wait_only;
    all.apart_ns += counts.apart_ns;
    finding.explain.rows.push_back({rank, counts.posted, counts.early, counts.wait_only, counts.apart_ns});
  }
  if (all.early == 0 || LittleOf(all.early, all.posted) || !HalfOf(all.wait_only, all.early)) return;
  const Summary& s = analysis.summary;
  const std::int64_t whole = s.terms.Sum();
  finding.covers_transfer = MostlyPosted(context.tables().collectives);
  analysis.mostly_posted = finding.covers_transfer;
  // If there is blocking communication too, only the part in Wait of the unsplit time belongs to this finding.
  const std::int64_t exposed = finding.covers_transfer
                                   ? s.terms.exposed_unsplit_ns + s.terms.exposed_transfer_ns
                                   : std::min(s.terms.exposed_unsplit_ns, MovedInWait(context, analysis));
  if (whole <= 0 || exposed * rules::kProgressExposedParts < whole) return;
  analysis.wait_only = true;
  if (static_cast<double>(exposed) < rules::kWorthShare * static_cast<double>(whole)) return;
  finding.id = FindingId::kProgressWaitOnly;
  finding.said.headline = {Say(analysis.mostly_posted ? Word::kPosted : Word::kPostedInPart),
                           Say(Word::kPostedCost, {{"exposed", PartOf(s, exposed)}, {"per_step", s.per_step}})};
  finding.said.brief = {Say(Word::kPostedBrief)};
  SetPrice(s, std::min(exposed, s.terms.Own()), finding);
  finding.upper_bound = true;
  finding.said.evidence = {
      Say(Word::kPostedEvidence, {{"wait_only", Num{all.wait_only}},
                                  {"early", Num{all.early}},
                                  {"later", Ns{all.apart_ns / std::max<std::int64_t>(1, all.wait_only)}}})};
  // Otherwise transfer.exposed says so.
  if (finding.covers_transfer) AddTo(finding.said.evidence, ReasonToMeasureNetwork(context, analysis));
  finding.said.action = {Say(Word::kPostedAction)};
  analysis.findings.push_back(std::move(finding));
}

}  // namespace lockstep::analysis
