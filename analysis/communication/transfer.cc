// Reports communication that compute does not hide.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include "analysis/choose_findings.h"
#include "analysis/communication/measure_network.h"
#include "analysis/communication/op_names.h"
#include "analysis/passes.h"
#include "analysis/replayed/replayed_run.h"
#include "analysis/rules/network.h"
#include "analysis/words/render.h"
#include "core/collective.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

// Whether all that is exposed are collectives of groups with one member.
bool ByItself(const Analysis& analysis) {
  return analysis.p2p.empty() && !analysis.collectives.empty() &&
         std::all_of(analysis.collectives.begin(), analysis.collectives.end(),
                     [](const CollectiveRow& row) { return row.group.size() == 1 && row.partial == 0; });
}

// How many of each row's collectives are in the steps that are compared; all of them where there are none. What is
// reduced once, before the first step, is no part of what is exposed in each.
std::vector<std::int64_t> InSteps(const Context& context, const Analysis& analysis) {
  std::set<std::int64_t> steps;
  for (const std::size_t row : context.usable_steps()) steps.insert(context.tables().steps.index[row]);
  std::map<std::tuple<std::string_view, std::uint64_t, std::uint64_t>, std::int64_t> counts;
  const auto& t = context.tables().collectives;
  const auto& step = context.tables().collective_ranks.step;
  for (std::size_t c = 0; c < t.rows(); ++c) {
    if (!context.Counts(c)) continue;
    bool in_step = steps.empty() || !analysis.summary.per_step;
    for (std::size_t m = context.timeline().FirstMember(c); m < context.timeline().FirstMember(c + 1) && !in_step; ++m)
      in_step = steps.contains(step[m]);
    counts[{Name(static_cast<CollectiveKind>(t.kind[c])), t.comm_id[c], t.bytes[c]}] += in_step;
  }
  std::vector<std::int64_t> result;
  for (const CollectiveRow& row : analysis.collectives)
    result.push_back(counts[{row.op, row.comm, row.bytes.value_or(0)}]);
  return result;
}

}  // namespace

void FindExposedTransfer(const Context& context, Analysis& analysis) {
  const Summary& s = analysis.summary;
  const std::int64_t whole = s.terms.Sum();
  // What moved only in Wait is priced by that finding; a part of the step is never priced twice.
  std::int64_t exposed = s.terms.exposed_transfer_ns + s.terms.exposed_unsplit_ns;
  for (const Finding& finding : analysis.findings) {
    if (finding.covers_transfer) return;
    if (finding.id == FindingId::kProgressWaitOnly)
      exposed -= std::min(exposed, finding.saves_ns_per_step.value_or(exposed));
  }
  exposed = std::max(exposed, s.terms.exposed_transfer_ns);
  // Exposed time is an upper bound of the cost: if the host decides when the step ends, hiding communication gains
  // nothing.
  const std::int64_t all_exposed = exposed;
  // If the replay knows how much is gained, it replaces this bound (prices.cc).
  const ReplayedRun* replayed = context.Replayed();
  const bool by_replay = replayed != nullptr && replayed->Holds() &&
                         replayed->what_if().Answerable({.kind = replay::Question::kFreeCommunication}).ok();
  if (analysis.comm_on_path_ns && !by_replay) exposed = std::min(exposed, *analysis.comm_on_path_ns);
  if (whole > 0 && !HalfOf(exposed, all_exposed) &&
      static_cast<double>(all_exposed) >= rules::kNameShare * static_cast<double>(whole)) {
    const double of_step = static_cast<double>(all_exposed) / static_cast<double>(whole),
                 gain = static_cast<double>(exposed) / static_cast<double>(whole);
    const bool worth = static_cast<double>(exposed) >= rules::kWorthShare * static_cast<double>(whole);
    analysis.remarks.push_back(Told(worth ? Word::kExposedButHost : Word::kExposedForNothing,
                                    {{"exposed", Share{of_step}}, {"gain", If(worth, Share{gain})}}));
  }
  if (whole <= 0 || static_cast<double>(exposed) < rules::kWorthShare * static_cast<double>(whole)) return;

  Finding finding;
  finding.id = FindingId::kTransferExposed;
  // Without the other ranks' files, what looks like transfer may be waiting for them, so the network is not reported as
  // slow.
  const bool others_missing = analysis.run.ranks < analysis.run.ranks_expected && exposed > s.terms.exposed_transfer_ns;
  const bool by_itself = !others_missing && ByItself(analysis);
  finding.said.headline = {Say(Word::kExposed, {{"exposed", PartOf(s, all_exposed)},
                                                {"on_path", If(exposed < all_exposed, PartOf(s, exposed))}}),
                           Say(others_missing ? Word::kExposedOthersMissing
                               : by_itself    ? Word::kExposedByItself
                                              : Word::kExposedCost)};
  finding.said.brief = {Say(Word::kExposedBrief)};
  SetPrice(s, exposed, finding);
  finding.upper_bound = true;
  const CollectiveRow* largest = nullptr;
  const std::vector<std::int64_t> in_steps = InSteps(context, analysis);
  const auto cost = [&](const CollectiveRow& row) {
    return row.transfer_ns_median.value_or(0) * in_steps[static_cast<std::size_t>(&row - analysis.collectives.data())];
  };
  const std::int64_t units =
      s.per_step ? std::max<std::int64_t>(1, static_cast<std::int64_t>(context.usable_steps().size())) : 1;
  finding.explain.columns = {"bytes", "count", "transfer_ns_median", "wait_ns_median", "censored"};
  for (const CollectiveRow& row : analysis.collectives) {
    if (largest == nullptr || cost(row) > cost(*largest)) largest = &row;
    constexpr std::int64_t kUnknown = Evidence::kUnknown;
    finding.explain.rows.push_back({row.bytes ? static_cast<std::int64_t>(*row.bytes) : kUnknown, row.count,
                                    row.transfer_ns_median.value_or(kUnknown), row.wait_ns_median.value_or(kUnknown),
                                    row.censored});
    finding.explain.names.push_back(Told(Word::kExposedKindRow, {{"op", row.op == "none" ? "" : row.op}}));
  }
  for (const P2pPair& pair : analysis.p2p.pairs) {
    finding.explain.rows.push_back(
        {static_cast<std::int64_t>(pair.messages > 0 ? pair.bytes / static_cast<std::uint64_t>(pair.messages) : 0),
         pair.messages, Evidence::kUnknown, Evidence::kUnknown, 0});
    finding.explain.names.push_back(
        Told(Word::kExposedMessagesRow, {{"source", Index{pair.source}}, {"destination", Index{pair.destination}}}));
  }
  const Ns transferring{s.terms.exposed_transfer_ns}, unsplit{s.terms.exposed_unsplit_ns};
  finding.said.evidence = {transferring.value > 0
                               ? Say(Word::kExposedEvidence, {{"transferring", transferring},
                                                              {"unsplit", If(exposed > transferring.value, unsplit)}})
                               : Say(Word::kExposedUnsplitEvidence, {{"unsplit", unsplit}})};
  if (largest != nullptr && !LittleOf(cost(*largest), exposed * units))
    finding.said.evidence.push_back(
        Say(Word::kExposedMostEvidence, {{"count", Num{largest->count}},
                                         {"collectives", Clauses{{NameOfCollectives(*largest, largest->count == 1)}}},
                                         {"rate", If(largest->busbw.has_value(), Rate{largest->busbw.value_or(0)})}}));
  AddTo(finding.said.evidence, ReasonToMeasureNetwork(context, analysis));
  if (others_missing) finding.said.evidence.push_back(Say(Word::kExposedOthersMissingEvidence));
  const bool barriers = largest != nullptr && largest->op == "barrier" && MostOf(cost(*largest), exposed * units);
  // Hiding no communication at all means that the job does not overlap it.
  finding.said.action = {Say(others_missing ? Word::kExposedOthersMissingAction
                             : by_itself    ? Word::kExposedByItselfAction
                             : barriers     ? Word::kExposedBarriersAction
                             : s.hidden_comm_high_ns * rules::kExposedHiddenParts < s.comm_high_ns
                                 ? Word::kExposedPostAction
                                 : Word::kExposedStartAction)};
  analysis.findings.push_back(std::move(finding));
}

}  // namespace lockstep::analysis
